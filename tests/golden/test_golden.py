"""Every golden case: migrated as its after.py says, a second migration plans nothing, and both train the same."""

from __future__ import annotations

import subprocess
import sys

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options
from crosstrain_migrate.syntax.checks import check_result
from crosstrain_verify import verify

from .cases import Case, cases

ALL = cases()
CONVERTED = [c for c in ALL if c.expect == "converted"]


def by_name(case: Case) -> str:
    return case.name


@pytest.mark.parametrize("case", ALL, ids=by_name)
def test_migrates_as_reviewed(case: Case) -> None:
    result = case.migrate()
    assert (case.folder / "report.json").read_text(encoding="utf-8") == case.report(result)
    if case.expect == "refused":
        assert result.refused
        assert not result.changed, "a refused script must stay as it is"
    else:
        assert not result.refused
        assert result.after == case.after.read_text(encoding="utf-8"), "run `make golden` and review the diff"
        assert case.source.encode(result.after) == case.after.read_bytes(), "its line ends are the original's"
        assert result.changed == (case.expect == "converted")


@pytest.mark.parametrize("case", CONVERTED, ids=by_name)
def test_second_migration_plans_nothing(case: Case) -> None:
    after = case.after.read_text(encoding="utf-8")
    again = migrate_text(case.after, after, Options())
    assert again.after == after
    assert not again.findings
    assert check_result(case.before.read_text(encoding="utf-8"), after) == []


@pytest.mark.parametrize("case", [c for c in ALL if c.expect != "refused"], ids=by_name)
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


def test_check_names_every_script_that_would_change() -> None:
    """The command itself: exit code 1 and every file's name before, 0 after."""
    before = [str(c.before) for c in CONVERTED]
    command = [sys.executable, "-m", "crosstrain_migrate.cli", "--check", "--no-diff"]
    first = subprocess.run([*command, *before], capture_output=True, text=True, check=False)
    assert first.returncode == 1
    said = first.stdout + first.stderr
    assert [c.name for c in CONVERTED if f"{c.name}/before.py" not in said] == []
    after = [str(c.after) for c in ALL if c.expect != "refused"]
    second = subprocess.run([*command, *after], capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stdout + second.stderr
