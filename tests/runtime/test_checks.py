"""The journal of checks: one line for each place and kind, with what came of it."""

import json
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from crosstrain import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import errors_of


def _trained(fails: bool) -> None:
    """A training in which every kind of check is made; in the last step the metric's rows are no rows."""
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(1, 1)
    loader = DataLoader(TensorDataset(torch.ones(16, 1)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), loader)
    for epoch in range(2):
        for (x,) in loader:
            accelerator.backward(model(x).mean())
            optimizer.step()
            accelerator.gather_for_metrics(x[: 3 if fails and epoch else 4])
            dist.all_reduce(torch.ones(3))


@pytest.mark.parametrize("fails", [False, True])
def test_each_check_says_what_came_of_it(fails: bool, tmp_path: Path) -> None:
    journal = tmp_path / "checks.jsonl"
    said = errors_of(_trained, 2, fails, env={"CROSSTRAIN_CHECKS": str(journal)})
    assert (said == ["no error"] * 2) is not fails
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    held = {(entry["kind"], entry["rank"]) for entry in entries if entry["status"] == "held"}
    kinds = ["alike", "loader", "mean", "module", "reduced", "rows", "seeds"]
    assert held == {(kind, rank) for kind in kinds for rank in range(2)}
    failed = {(entry["kind"], entry["rank"]) for entry in entries if entry["status"] == "failed"}
    assert failed == ({("rows", 0), ("rows", 1)} if fails else set())
    lines = Path(__file__).read_text().splitlines()
    rows = next(number for number, line in enumerate(lines, 1) if "accelerator.gather_for_metrics(" in line)
    assert {entry["line"] for entry in entries if entry["kind"] == "rows"} == {rows}
    assert {Path(entry["file"]).name for entry in entries} == {Path(__file__).name}
