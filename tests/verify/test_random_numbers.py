"""Whose random numbers verify's runs draw: the exact run as one process, the default launch each process its own."""

from dataclasses import replace
from pathlib import Path

import pytest
from crosstrain_verify.judging.random_numbers import same_noise, whose
from crosstrain_verify.records.traces import RankTrace

from tests.runtime.verify_scripts import after, before, run

SCRIPT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{start}
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=8, shuffle=True)
{prepare}
for x, y in loader:
    loss = nn.functional.mse_loss(model(x + 0.1 * torch.randn_like(x)), y)
    optimizer.zero_grad()
    {backward}
    optimizer.step()
"""
OWN = "random numbers: each process draws its own"
ALIKE = "random numbers: all processes draw the same ones"


@pytest.mark.parametrize("options", ["", "own_draws=False"])
def test_the_report_says_whose_random_numbers_are_drawn(options: str, tmp_path: Path) -> None:
    """A default launch whose processes draw alike has a difference: their rows get the same masks."""
    start = f"from crosstrain import Accelerator\naccelerator = Accelerator({options})"
    converted = after(SCRIPT, "model, optimizer, loader", start=start)
    report = run(tmp_path, converted, before(SCRIPT), processes=(1, 2), default_launch=True)
    assert report.ok is not bool(options), report
    _, exact, default = report.runs
    assert exact.verdict.value == "equal"
    assert "--split-batches --common-draws" in exact.launch
    assert any(note.startswith(ALIKE) for note in exact.notes)
    assert default.verdict.value == ("different" if options else "agree")
    assert (default.cause.rule if default.cause else "") == ("drawn-alike" if options else "")
    assert "--common-draws" not in default.launch
    assert any(note.startswith(ALIKE if options else OWN) for note in default.notes), default.notes


def test_processes_that_draw_the_same_noise_are_a_difference() -> None:
    one = RankTrace("finished", noise=(1, 2), own_draws=True)
    other = replace(one, noise=(3, 4))
    assert same_noise([one, other]) is None
    assert whose([one, other]).startswith(OWN)
    assert "rank 1: the same noise" in str(same_noise([one, one]))
    assert same_noise([replace(one, noise=())] * 2) is None  # training draws nothing
