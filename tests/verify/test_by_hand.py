"""Conversions that are not ours: right ones are proven, and mistakes in them are called by their names."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.verify.planted import PLANTED, found, rules

SHORT = {
    ("loader not sharded", "ddp"),
    ("loader not sharded", "on_runtime"),
    ("loss scaled twice", "ddp"),
    ("dropout drawn alike", "ddp"),
}
PAIRS = [
    pytest.param(cause, script, marks=() if (cause, script) in SHORT else pytest.mark.slow)
    for cause, scripts in PLANTED.items()
    for script in scripts
]


LIBRARIES = {"accelerated": "accelerate", "fabric": "lightning_fabric"}


def needs(script: str) -> None:
    if script in LIBRARIES and find_spec(LIBRARIES[script]) is None:
        pytest.skip(f"{LIBRARIES[script]} is not installed")


@pytest.mark.parametrize(("cause", "script"), PAIRS)
def test_a_planted_mistake_is_named(cause: str, script: str, tmp_path: Path) -> None:
    needs(script)
    planted = PLANTED[cause][script]
    report = found(script, planted, tmp_path)
    assert not report.ok
    assert rules(report)[0] == planted.rule, report.runs


@pytest.mark.parametrize("script", ["ddp", "accelerated", "fabric"])
def test_a_right_conversion_is_equal(script: str, tmp_path: Path) -> None:
    needs(script)
    report = found(script, None, tmp_path)
    assert [run.verdict.value for run in report.runs] == ["identical", "equal"], report.runs
    assert report.runs[1].launch == f"torchrun --nproc-per-node 2 {script}.py"
    assert not report.checks  # they belong to the bundled runtime


def test_a_loader_that_is_not_shared_out_fails_the_check_of_its_loop(tmp_path: Path) -> None:
    """It had been *not reached* in a default launch that agreed."""
    report = found("on_runtime", PLANTED["loader not sharded"]["on_runtime"], tmp_path)
    default = report.runs[-1]
    assert default.verdict.value == "different"
    at_step = {one.status for one in default.checks if one.kind == "loader" and one.line >= 26}
    assert at_step == {"failed"}, default.checks
