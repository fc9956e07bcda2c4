"""Every golden case: migrated as its after.py says, a second migration plans nothing, and both train the same."""

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options
from crosstrain_verify import verify

from .cases import Case, cases

ALL = cases()


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.name)
def test_migrates_as_reviewed(case: Case) -> None:
    result = case.migrate()
    assert (case.folder / "report.json").read_text(encoding="utf-8") == case.report(result)
    assert result.refused == (case.expect == "refused")
    assert result.changed == (case.expect == "converted")
    if not result.refused:
        after = case.after.read_text(encoding="utf-8")
        assert result.after == after, "run `make golden` and review the diff"
        assert case.source.encode(after) == case.after.read_bytes(), "its line ends are the original's"
    if result.changed:
        again = migrate_text(case.after, after, Options())
        assert again.after == after, "a second migration plans nothing"
        assert not again.findings


@pytest.mark.parametrize("case", [c for c in ALL if c.expect != "refused"], ids=lambda case: case.name)
def test_trains_the_same(case: Case) -> None:
    """One process bit-identical; two processes equal to tolerance, random draws and batch statistics included. A script
    that distributes itself is compared with itself, rank by rank.

    "agree": a loss that is no mean over rows, or a line about the batch of one process. Where another line differs, the
    training does not.
    """
    report = verify(
        case.before,
        case.after,
        args=case.args,
        processes=(1, 2),
        expect="agree" if case.two_processes == "agree" else "equal",
        timeout=300,
    )
    verdicts = [run.verdict.value for run in report.runs]
    assert verdicts == ["identical", case.two_processes], report
    if case.two_processes in ("different", "within noise"):
        apart = report.runs[1]
        assert "printed line" in str(apart.difference or apart.notes[0]), report
        assert apart.largest["loss"] < 1e-5, report
