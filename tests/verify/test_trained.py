"""What has a gradient in the original must have one in the result, whatever the weights come to."""

from pathlib import Path

import pytest
from crosstrain_verify.judging.compare import compare_trained_parameters
from crosstrain_verify.records.traces import Parameter, RankTrace

from tests.runtime.verify_scripts import after, before, run, verdicts


def trace(*trained: int, steps: int = 4) -> RankTrace:
    names = ("body.weight", "head.weight", "head.bias", "a", "b")
    both = zip(names, trained, strict=False)
    seen = tuple(Parameter(name, (2,), 0.0, 1.0, 1.0, number, steps) for name, number in both)
    return RankTrace("finished", parameters=seen)


def test_what_is_trained_in_one_of_two_runs_is_named() -> None:
    said = "a gradient in 4 of 4 steps of the original, in 0 of 4 steps of the result"
    found = compare_trained_parameters(trace(4, 4, 4), trace(4, 0, 0), step_by_step=True)
    assert str(found) == f"head.weight, head.bias: {said}"
    found = compare_trained_parameters(trace(0, 0, 0, 0), trace(4, 4, 4, 4), step_by_step=True)
    assert found is not None
    assert found.detail == "body.weight, head.weight, head.bias and 1 more"


@pytest.mark.parametrize(
    ("ours", "theirs", "exactly", "usually"),
    [
        ((4, 0), (4, 0), False, False),
        ((4, 3), (4, 2), True, False),  # a part that is left out at random
        ((4, 4), (4, 2), True, False),  # frozen after so many passes, which are shorter in another launch
        ((4, 0), (4, 2), True, False),
        ((4, 4), (4, 0), True, True),
    ],
)
def test_other_steps_are_compared_by_what_is_always_so(
    ours: tuple[int, ...], theirs: tuple[int, ...], exactly: bool, usually: bool
) -> None:
    both = [compare_trained_parameters(trace(*ours), trace(*theirs), step_by_step=n) for n in (True, False)]
    assert [one is not None for one in both] == [exactly, usually]


SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
{start}
torch.manual_seed(3)
body, head, aux, idle = (torch.nn.Linear(4, 4) for _ in range(4))
model = torch.nn.ModuleList([body, head, aux, idle])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=4)
{prepare}
for number, (x,) in enumerate(loader):
    h = model[0](x)
    losses = {{"main": model[1](h).square().mean(), "aux": model[2](h).square().mean()}}
    losses["aux"] = {aux}
    optimizer.zero_grad()
    {backward}(sum(losses.values()))
    optimizer.step()
"""
OWN = "losses['aux']"


def converted(aux: str) -> str:
    return after(SCRIPT, "model, optimizer, loader", aux=aux, backward="accelerator.backward")


def test_a_head_that_is_silently_not_trained_is_a_difference_in_every_run(tmp_path: Path) -> None:
    """A parameter that has no gradient in either run is none."""
    original = before(SCRIPT, aux=OWN, backward="torch.autograd.backward")
    report = run(tmp_path, converted(OWN), original, default_launch=True)
    assert verdicts(report) == ["identical", "equal", "agree"], report
    gathered = converted(f"accelerator.gather({OWN}.detach()).mean()")
    report = run(tmp_path, gathered, original, default_launch=True)
    assert verdicts(report) == ["different"] * 3, report
    for one in report.runs:
        assert one.difference is not None and one.difference.quantity == "gradient", one
        assert one.difference.detail == "2.weight, 2.bias"
        assert one.cause is not None and one.cause.rule == "not-trained"
        assert one.cause.lines == ("after.py:17",)
