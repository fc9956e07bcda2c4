"""Conversions that are not ours: right ones are proven, and mistakes in them are called by their names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from crosstrain_verify import Report, verify
from crosstrain_verify.judging.default_launch import ONLY_EVEN

BY_HAND = Path(__file__).with_name("by_hand")
# Mistakes in `by_hand/ddp.py`: text and replacement, the cause that verify must name, arguments of the script.
# The golden corpus has those in conversions for the runtime (`test_mutations.py`).
PLANTED: dict[str, tuple[Mapping[str, str], str, tuple[str, ...]]] = {
    "loader not sharded": (
        {"batch_size=8, sampler=sampler": "batch_size=8, shuffle=True"},
        "loader-not-prepared",
        (),
    ),
    "loss scaled twice": ({"scaler.scale(loss)": "scaler.scale(loss / world)"}, "scaled-twice", ()),
    "gradients not averaged": (
        {"cross_entropy(model(x)": "cross_entropy(model.module(x)"},
        "not-averaged",
        (),
    ),
    "scheduler stepped P times": (
        {"scheduler.step()": "[scheduler.step() for _ in range(world)]"},
        "scheduler-per-process",
        (),
    ),
    "evaluation counted twice": ({"[128 + rank :: world]": "[128:]"}, "evaluation-counted-twice", ()),
    "clipping before unscaling": (
        {"scaler.unscale_(optimizer)\n": "pass\n"},
        "clipped-before-unscale",
        ("amp",),
    ),
    "model not prepared": ({"model = DistributedDataParallel(model)\n": ""}, "model-not-prepared", ()),
    "dropout drawn alike": ({"if rank:\n": "if False:\n"}, "drawn-alike", ()),
}
SLOW = [
    pytest.param(name, marks=() if name == "loader not sharded" else pytest.mark.slow) for name in PLANTED
]


def verified(
    folder: Path, edits: Mapping[str, str], args: tuple[str, ...] = (), *, source: str = ".", rows: str = ""
) -> Report:
    """`plain.py` of a folder of `by_hand` against its `ddp.py` with these edits; ``rows``: as many pictures in both."""
    place = BY_HAND / source
    for name, changes in (("plain.py", {}), ("ddp.py", edits)):
        text = (place / name).read_text(encoding="utf-8")
        if rows:
            text = text.replace("149", rows)
        for old, new in changes.items():
            assert old in text, old
            text = text.replace(old, new)
        (folder / name).write_text(text, encoding="utf-8")
    devices = "present" if args else None
    return verify(
        folder / "plain.py", folder / "ddp.py", args=args, default_launch=True, devices=devices, timeout=300
    )


@pytest.mark.parametrize("name", SLOW)
def test_a_planted_mistake_is_named(name: str, tmp_path: Path) -> None:
    edits, rule, args = PLANTED[name]
    report = verified(tmp_path, edits, args)
    assert not report.ok
    assert next(run.cause.rule for run in report.runs if run.cause is not None) == rule, report.runs


def test_a_right_conversion_is_equal(tmp_path: Path) -> None:
    report = verified(tmp_path, {})
    assert [run.verdict.value for run in report.runs] == ["identical", "equal"], report.runs
    assert report.runs[1].launch == "torchrun --nproc-per-node 2 ddp.py"
    assert not report.checks  # they belong to the bundled runtime


SHARE = "DataLoader(Subset(test_set, range(rank, len(test_set), world)), batch_size=10)"
PADDED = "DataLoader(test_set, batch_size=10, sampler=DistributedSampler(test_set, shuffle=False))"


@pytest.mark.parametrize(
    ("edits", "verdict"), [({}, "equal"), ({SHARE: PADDED}, "different")], ids=["own share", "padded"]
)
def test_an_even_evaluation_is_compared_with_one_row_less_first(
    edits: Mapping[str, str], verdict: str, tmp_path: Path
) -> None:
    """Which each rank leaves out of its own share. A sampler that pads counts a row twice in other sets than even ones."""
    report = verified(tmp_path, edits, source="images", rows="150")
    assert [run.verdict.value for run in report.runs] == ["identical", verdict], report.runs
    assert (ONLY_EVEN in report.runs[1].notes) or edits
