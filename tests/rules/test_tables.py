"""The tables themselves: every rule has cases, and at least as many of what it must not do as of what it does."""

from __future__ import annotations

import importlib
import pkgutil
from collections import Counter

import pytest
from crosstrain_migrate.rules.catalogue import catalogue

import tests.rules

from .support import Case


def tables() -> list[Case]:
    cases: list[Case] = []
    for module in pkgutil.iter_modules(tests.rules.__path__):
        if module.name.startswith("test_") and module.name != "test_tables":
            content = vars(importlib.import_module(f"tests.rules.{module.name}"))
            for name in ("POSITIVE", "NEGATIVE"):
                cases += [case for case in content.get(name, ()) if isinstance(case, Case)]
    return cases


CASES = tables()
# The tool's own work (CT0) has tests of the command. What takes hand-written distribution out (CT30x) rewrites whole scripts: its tables serve several codes at once.
# What is done to notebooks (CT8) has tables of notebooks: tests/notebooks. Training that nothing calls (CT905) and
# accumulation by hand (CT206) have whole scripts: test_unseen, test_micro_batches.
CODES = sorted(
    {page.code for page in catalogue() if not page.code.startswith(("CT0", "CT30", "CT8", "CT905", "CT206"))}
)
# Whole evaluation (CT603) is what distributed evaluation (CT601) must leave alone.
SIDES = {"CT603": "CT601"}
# A gate's own work is to refuse, and what it must leave alone is converted: both are whole tables of one module.
GATES = {case.rule for case in CASES if case.refused} - {case.rule for case in CASES if case.positive}


def test_names_are_unique() -> None:
    twice = [key for key, count in Counter((c.rule, c.name) for c in CASES).items() if count > 1]
    assert not twice


@pytest.mark.parametrize("code", CODES)
def test_every_rule_has_cases(code: str) -> None:
    mine = [case for case in CASES if case.rule == code or code in dict(case.findings)]
    assert mine, f"no table mentions {code}"


@pytest.mark.parametrize(
    "code", sorted({SIDES.get(case.rule, case.rule) for case in CASES if case.rule in CODES} - GATES)
)
def test_no_op_cases_are_as_many(code: str) -> None:
    mine = [case for case in CASES if SIDES.get(case.rule, case.rule) == code]
    positive = [case.name for case in mine if case.positive]
    negative = [case.name for case in mine if not case.positive]
    assert len(negative) >= len(positive), f"{code}: {len(positive)} do something, {len(negative)} do not"
