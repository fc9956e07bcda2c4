"""Conversions that are not ours: right ones are proven, and mistakes in them are called by their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from crosstrain_verify import Report, verify

BY_HAND = Path(__file__).with_name("by_hand")
# Mistakes in `by_hand/ddp.py`: text and replacement, the cause that verify must name.
# The golden corpus has those in conversions for the runtime (`test_mutations.py`).
PLANTED: dict[str, tuple[Mapping[str, str], str]] = {
    "loader not sharded": (
        {"batch_size=8, sampler=sampler": "batch_size=8, shuffle=True"},
        "loader-not-prepared",
    ),
    "gradients not averaged": (
        {"cross_entropy(model(x)": "cross_entropy(model.module(x)"},
        "not-averaged",
    ),
    "evaluation counted twice": ({"[128 + rank :: world]": "[128:]"}, "evaluation-counted-twice"),
}
SLOW = [
    pytest.param(name, marks=() if name == "loader not sharded" else pytest.mark.slow) for name in PLANTED
]


def verified(folder: Path, edits: Mapping[str, str]) -> Report:
    """`by_hand/plain.py` against `by_hand/ddp.py` with these edits."""
    for name, changes in (("plain.py", {}), ("ddp.py", edits)):
        text = (BY_HAND / name).read_text(encoding="utf-8")
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    return verify(folder / "plain.py", folder / "ddp.py", default_launch=True, timeout=300)


@pytest.mark.parametrize("name", SLOW)
def test_a_planted_mistake_is_named(name: str, tmp_path: Path) -> None:
    edits, rule = PLANTED[name]
    report = verified(tmp_path, edits)
    assert not report.ok
    assert next(run.cause.rule for run in report.runs if run.cause is not None) == rule, report.runs


def test_a_right_conversion_is_equal(tmp_path: Path) -> None:
    report = verified(tmp_path, {})
    assert [run.verdict.value for run in report.runs] == ["identical", "equal"], report.runs
    assert report.runs[1].launch == "torchrun --nproc-per-node 2 ddp.py"
    assert not report.checks  # they belong to the bundled runtime
