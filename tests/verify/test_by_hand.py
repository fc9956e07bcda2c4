"""Conversions that are not ours: right ones are proven, and mistakes in them are called by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_verify import verify
from crosstrain_verify.judging.default_launch import ONLY_EVEN

from tests.verify.planted import BY_HAND, PLANTED, found, rules

SHORT = {("loader not sharded", "ddp"), ("loader not sharded", "on_runtime")}
PAIRS = [
    pytest.param(cause, script, marks=() if (cause, script) in SHORT else pytest.mark.slow)
    for cause, scripts in PLANTED.items()
    for script in scripts
]


@pytest.mark.parametrize(("cause", "script"), PAIRS)
def test_a_planted_mistake_is_named(cause: str, script: str, tmp_path: Path) -> None:
    planted = PLANTED[cause][script]
    report = found(script, planted, tmp_path)
    assert not report.ok
    assert rules(report)[0] == planted.rule, report.runs


def test_a_right_conversion_is_equal(tmp_path: Path) -> None:
    report = found("ddp", None, tmp_path)
    assert [run.verdict.value for run in report.runs] == ["identical", "equal"], report.runs
    assert report.runs[1].launch == "torchrun --nproc-per-node 2 ddp.py"
    assert not report.checks  # they belong to the bundled runtime


def test_an_evaluation_that_is_even_and_sharded_by_hand_is_equal(tmp_path: Path) -> None:
    """It is compared with one row less first, which each rank leaves out of its own share."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    for path, source in ((before, "plain.py"), (after, "ddp.py")):
        path.write_text((BY_HAND / "images" / source).read_text().replace("149", "150"))
    report = verify(before, after, default_launch=True, timeout=300)
    assert [run.verdict.value for run in report.runs] == ["identical", "equal"], report.runs
    assert ONLY_EVEN in report.runs[1].notes


def test_a_row_that_completes_a_share_counts_once(tmp_path: Path) -> None:
    """A sampler that pads counts a row twice in other sets than even ones: that is seen with one row less."""
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    share = "DataLoader(Subset(test_set, range(rank, len(test_set), world)), batch_size=10)"
    padded = "DataLoader(test_set, batch_size=10, sampler=DistributedSampler(test_set, shuffle=False))"
    for path, source in ((before, "plain.py"), (after, "ddp.py")):
        path.write_text(
            (BY_HAND / "images" / source).read_text().replace("149", "150").replace(share, padded)
        )
    assert padded in after.read_text()
    report = verify(before, after, default_launch=True, timeout=300)
    assert [run.verdict.value for run in report.runs] == ["identical", "different"], report.runs


def test_a_loader_that_is_not_shared_out_fails_the_check_of_its_loop(tmp_path: Path) -> None:
    """It had been *not reached* in a default launch that agreed."""
    report = found("on_runtime", PLANTED["loader not sharded"]["on_runtime"], tmp_path)
    default = report.runs[-1]
    assert default.verdict.value == "different"
    at_step = {one.status for one in default.checks if one.kind == "loader" and one.line >= 26}
    assert at_step == {"failed"}, default.checks
