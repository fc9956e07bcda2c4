"""Every example on a rule's page: the tool does with it what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options, Severity
from crosstrain_migrate.rules.catalogue import Example, catalogue

from .support import Case, check_invariants, reported

EXAMPLES = [
    pytest.param(example, id=f"{example.code}-{example.kind.lower()}-{number}")
    for page in catalogue()
    for number, example in enumerate(page.examples, 1)
]
# What a finding in the example's own lines is; of an `Example`, what is changed counts.
SAID = {"Stays": set(), "Noted": {Severity.NOTE}, "Left": {Severity.NOTE}, "Refused": {Severity.REFUSED}}
# Told in words: the tool's own work, advice for a TPU, notebooks, and what takes several functions or files to show.
IN_WORDS = "CT0 CT302 CT303 CT304 CT305 CT308 CT309 CT7 CT8 CT101 CT902 CT905"


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example(example: Example) -> None:
    check(example)


def check(example: Example) -> None:
    """Migrates the script with the example in it, and compares."""
    case = Case(
        example.code,
        example.kind,
        example.before,
        example.after,
        refused=example.kind == "Refused",
        kept=example.kind == "Left",
    )
    result = migrate_text(Path("train.py"), case.script, Options())
    assert result.after == case.expected
    assert result.refused == case.refused
    if example.kind == "Example":
        assert example.code in {rule for rule, _ in reported(result)}
    else:
        lines = _own_lines(case)
        said = {f.severity for f in result.findings if f.rule == example.code and f.line in lines}
        assert said == SAID[example.kind]
    check_invariants(case.script, result)


def _own_lines(case: Case) -> set[int]:
    """Where the example's own code stands in the script."""
    own = {line.strip() for code in case.before.values() for line in code.split("\n") if line.strip()}
    return {number for number, line in enumerate(case.script.split("\n"), 1) if line.strip() in own}


def test_every_rule_has_examples() -> None:
    assert {
        p.code for p in catalogue() if not p.examples and not p.code.startswith(tuple(IN_WORDS.split()))
    } == set()


def test_a_code_has_one_page() -> None:
    codes = [page.code for page in catalogue()]
    assert len(codes) == len(set(codes))
