"""The report says what more processes change."""

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

GOLDEN = Path(__file__).parents[2] / "golden"


@pytest.mark.parametrize(
    ("name", "runtime", "switch"),
    [
        ("mnist_functions", "crosstrain", "`crosstrain launch --split-batches`"),
        ("main_argparse", "accelerate", "`Accelerator(split_batches=True)`"),
        ("hogwild", "crosstrain", ""),  # which is left alone
    ],
)
def test_the_size_of_the_batch(name: str, runtime: str, switch: str) -> None:
    file = GOLDEN / name / "before.py"
    said = migrate_text(file, file.read_text("utf-8"), Options(runtime=runtime)).extras.get("Batch size", "")
    assert ("`train_loader`" in said, switch in said) == (bool(switch), True)
