"""Every example on a rule's page: the tool does with it what the page says."""

import pytest
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.catalogue import Example, catalogue

from .support import CONVERTED, comments, migrate, script

EXAMPLES = [
    pytest.param(example, id=f"{example.code}-{example.kind.lower()}-{number}")
    for page in catalogue()
    for number, example in enumerate(page.examples, 1)
]
# What a finding in the example's own lines is; of an `Example`, what is changed counts.
SAID = {"Stays": set(), "Noted": {Severity.NOTE}, "Left": {Severity.NOTE}, "Refused": {Severity.REFUSED}}
# Rules that only add an argument show as the change of what they add it to.
ADDED = {"CT204": {"CT102"}, "CT205": {"CT102", "CT201"}}
# Told in words: the tool's own work, advice for a TPU, notebooks, and what takes several functions or files to show.
IN_WORDS = "CT0 CT302 CT303 CT304 CT305 CT308 CT309 CT7 CT8 CT101 CT902 CT905"


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example(example: Example) -> None:
    text, expected = script(**example.before), script(**{**CONVERTED, **example.before, **example.after})
    result = migrate(text)
    assert result.after == (text if example.kind in ("Left", "Refused") else expected)
    assert result.refused == (example.kind == "Refused")
    if example.kind == "Example":
        assert {change.rule for change in result.changes} & {example.code, *ADDED.get(example.code, ())}
    else:
        own = {line.strip() for code in example.before.values() for line in code.split("\n")} - {""}
        lines = {number for number, line in enumerate(text.split("\n"), 1) if line.strip() in own}
        said = {f.severity for f in result.findings if f.rule == example.code and f.line in lines}
        assert said == SAID[example.kind]
    assert not comments(text) - comments(result.after), "a comment was lost"
    if result.changed:
        again = migrate(result.after)
        assert not again.changed, "the second migration changed something"
        assert {f.rule for f in again.findings} <= {"CT901"}, "a script for Accelerate is left to it"
    assert all(finding.reason and finding.remedy for finding in result.findings)


def test_every_rule_has_one_page_with_examples() -> None:
    codes = [page.code for page in catalogue()]
    assert len(codes) == len(set(codes))
    bare = {page.code for page in catalogue() if not page.examples}
    assert not {code for code in bare if not code.startswith(tuple(IN_WORDS.split()))}
