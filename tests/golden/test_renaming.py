"""Decisions come from what values are, never from what they are called."""

import json
from collections import Counter

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .cases import Case, cases
from .renaming import Renaming

ALL = cases()


def places(report: str) -> list[Counter[tuple[object, ...]]]:
    """Which rule did what in which line, and which findings there are, without their words."""
    said = json.loads(report)
    return [Counter(tuple(row[:-1]) for row in said[kind]) for kind in ("changes", "findings")]


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_other_names_change_nothing(case: Case) -> None:
    text = case.before.read_text(encoding="utf-8")
    renaming = Renaming(text)
    other = renaming.apply(text)
    assert other != text
    result = migrate_text(case.before, other, Options())
    reviewed = (case.folder / "report.json").read_text(encoding="utf-8")
    assert places(case.report(result)) == places(reviewed)
    kept = case.after if case.expect != "refused" else case.before
    assert result.after == renaming.apply(kept.read_text(encoding="utf-8"))
