"""The report says what more processes change."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize(
    ("name", "runtime", "batch", "schedulers"),
    [
        (
            "mnist_functions",
            "crosstrain",
            ["`train_loader` (batch_size=args.batch_size)", "--split-batches"],
            "`scheduler` steps once an epoch, whatever the number of processes.",
        ),
        (
            "main_argparse",
            "accelerate",
            ["`train_loader` (batch_size=args.batch_size)", "`Accelerator(split_batches=True)`"],
            "`scheduler` steps once a batch, counted over the batches of all processes.",
        ),
    ],
)
def test_batch_size_and_schedulers(name: str, runtime: str, batch: list[str], schedulers: str) -> None:
    file = GOLDEN / name / "before.py"
    result = migrate_text(file, file.read_text("utf-8"), Options(runtime=runtime))
    assert result.changed
    assert all(part in result.extras["Batch size"] for part in batch)
    assert result.extras["Schedulers"] == schedulers


def test_a_script_that_is_left_alone_is_told_nothing() -> None:
    file = GOLDEN / "hogwild" / "before.py"
    assert not migrate_text(file, file.read_text("utf-8"), Options()).extras
