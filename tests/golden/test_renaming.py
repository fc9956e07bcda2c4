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


@pytest.mark.parametrize("case", ALL, ids=[case.name for case in ALL])
def test_renamed_scripts_still_stand(case: Case) -> None:
    """The renaming itself: same shape, most names new, every line as long as it was."""
    text = case.before.read_text(encoding="utf-8")
    renaming = Renaming(text)
    other = renaming.apply(text)
    shape = [type(node) for node in ast.walk(ast.parse(text))]
    assert [type(node) for node in ast.walk(ast.parse(other))] == shape
    assert [len(line) for line in other.split("\n")] == [len(line) for line in text.split("\n")]
    assert len(set(renaming.new.values())) == renaming.count
    assert renaming.count >= len(renaming.names.bound) / 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("import torch\nx = torch.ones(3)\n", "import torch\ny = torch.ones(3)\n"),
        ("def f(a, b=1):\n    return a\n\n\nf(1, b=2)\n", "def g(b, c=1):\n    return b\n\n\ng(1, c=2)\n"),
        (
            "import torch\nsize = 3\ntorch.ones(size=size)\n",
            "import torch\ntjaf = 3\ntorch.ones(size=tjaf)\n",
        ),
        ('a = 1\nprint(f"{a:.3f}")\n', 'b = 1\nprint(f"{b:.3f}")\n'),
        ("def f(a):\n    return g(a=a)\n", "def h(a):\n    return g(a=a)\n"),
        (
            "class A:\n    def __init__(self):\n        self.net = 1\n",
            "class B:\n    def __init__(self):\n        self.ofu = 1\n",
        ),
        ("class A:\n    rate = 1\n\n\nA.rate\n", "class B:\n    rate = 1\n\n\nB.rate\n"),
    ],
    ids=[
        "variable",
        "parameter",
        "keyword of a library",
        "f-string",
        "unknown function",
        "attribute",
        "field",
    ],
)
def test_renaming(before: str, after: str) -> None:
    assert Renaming(before).apply(before) == after
