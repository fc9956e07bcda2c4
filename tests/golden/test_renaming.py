"""Decisions come from what values are, never from what they are called."""

from __future__ import annotations

import ast
import json
from collections import Counter

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .cases import Case, cases
from .renaming import Renaming

ALL = cases()


def reviewed(case: Case) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int, str]], str]:
    """Which rule did what in which line, which findings there are, and the result: as they were reviewed."""
    report = json.loads((case.folder / "report.json").read_text(encoding="utf-8"))
    changes = Counter((rule, line) for line, rule, _ in report["changes"])
    findings = Counter((rule, line, severity) for line, rule, severity, _ in report["findings"])
    kept = case.after if case.expect != "refused" else case.before
    return changes, findings, kept.read_text(encoding="utf-8")


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_other_names_change_nothing(case: Case) -> None:
    text = case.before.read_text(encoding="utf-8")
    renaming = Renaming(text)
    other = renaming.apply(text)
    assert other != text
    result = migrate_text(case.before, other, Options())
    changes, findings, after = reviewed(case)
    assert Counter((change.rule, change.line) for change in result.changes) == changes
    assert Counter((f.rule, f.line, f.severity.value) for f in result.findings) == findings
    assert result.after == renaming.apply(after)
