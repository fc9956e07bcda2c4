"""Conversions that are not ours: right ones are proven, and mistakes in them are called by their names."""

from pathlib import Path

import pytest

from tests.runtime.verify_scripts import run, verdicts

PLAIN, BY_HAND = (
    Path(__file__).with_name("by_hand").joinpath(name).read_text(encoding="utf-8")
    for name in ("plain.py", "ddp.py")
)
# Text and replacement, and the cause that verify must name. The golden corpus has those in conversions for the
# runtime (`test_mutations.py`).
PLANTED = {
    "loader-not-prepared": ("sampler=sampler", "shuffle=True"),
    "not-averaged": ("cross_entropy(model(x)", "cross_entropy(model.module(x)"),
    "evaluation-counted-twice": ("128 + rank :: world", "128:"),
    "drawn-alike": ("if rank:\n", "if False:\n"),
}


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_mistake_is_named(rule: str, tmp_path: Path) -> None:
    report = run(tmp_path, BY_HAND.replace(*PLANTED[rule]), PLAIN, default_launch=True)
    assert not report.ok
    assert next(run.cause.rule for run in report.runs if run.cause is not None) == rule, report.runs


def test_a_right_conversion_is_equal(tmp_path: Path) -> None:
    report = run(tmp_path, BY_HAND, PLAIN, default_launch=True)
    assert verdicts(report) == ["identical", "equal"], report.runs
    assert report.runs[1].launch == "torchrun --nproc-per-node 2 after.py"
    assert not report.checks  # they belong to the bundled runtime
