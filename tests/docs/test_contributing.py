"""CONTRIBUTING.md: the places it names exist, and the rule it shows works."""

from __future__ import annotations

import re
import types
from pathlib import Path

import pytest
from crosstrain_migrate.rules import planning

from tests.rules.support import SLOTS, migrate, script

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
ON = "torch.autograd.set_detect_anomaly(True)"


@pytest.mark.parametrize("place", re.findall(r"`((?:migrate|runtime|tests|golden)/[\w./]*)`", TEXT))
def test_a_place_exists(place: str) -> None:
    assert (ROOT / place).exists()


@pytest.mark.parametrize(("code", "lines"), [(ON, 1), (ON.replace("True", "False"), 0), ("print(model)", 0)])
def test_the_rule_that_is_shown(code: str, lines: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = re.search(r"```python\n(\"\"\"CT999.*?)```", TEXT, re.DOTALL)
    assert shown is not None
    rule = types.ModuleType("rule")
    exec(compile(shown[1], "CONTRIBUTING.md", "exec"), vars(rule))
    own = planning.clipping.plan

    def both(context: planning.Context) -> None:
        own(context)
        rule.plan(context)

    monkeypatch.setattr(planning.clipping, "plan", both)
    found = [f for f in migrate(script({**SLOTS, "setup": code})).findings if f.rule == "CT999"]
    assert len(found) == lines
