"""Leaving out what nothing has changed gives what evaluating everything gives."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from crosstrain_migrate.facts.infer import Interpreter
from crosstrain_migrate.facts.memory import Copies, Watch
from crosstrain_migrate.syntax.scopes import ScopeTable

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = ("gan", "trainer_class", "ddp_spawn", "infinite_loader", "dict_transformer", "graph_net")


class Restless(Watch):
    """Settles nothing: every pass evaluates everything."""

    def enter(self, unit: ast.AST) -> tuple[ast.AST | None, int]:
        outer = super().enter(unit)
        self.settled.clear()
        return outer


# Containers that are joined while others have read them.
MANY = (
    "def pick(n, held):\n"
    + "".join(f"    if n == {n}:\n        held = [held, {{'k{n}': held}}]\n" for n in range(50))
    + "    return held\n\nfound = pick(3, [print])\nwhile found:\n    found = found[1]['k1']\n    found.append(open)\n"
)


@pytest.mark.parametrize("case", [*CASES, "many containers"])
def test_only_what_changed_is_evaluated_again(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    many = case not in CASES
    tree = ast.parse(MANY if many else (GOLDEN / case / "before.py").read_text(encoding="utf-8"))
    table = ScopeTable(tree)
    shared = Copies()
    monkeypatch.setattr("crosstrain_migrate.facts.interpretation.Copies", lambda: shared)
    sparing = Interpreter(tree, table)
    sparing.run()
    monkeypatch.setattr("crosstrain_migrate.facts.interpretation.Watch", Restless)
    thorough = Interpreter(tree, table)
    thorough.run()
    for name in ("env", "definitions", "heap", "returns", "values", "iterations"):
        assert dict(getattr(sparing, name).items()) == dict(getattr(thorough, name).items()), name
    assert sparing.call_sites == thorough.call_sites
    assert sparing.escaped == thorough.escaped
    assert sparing.modules_by_evidence == thorough.modules_by_evidence


def test_what_was_looked_for_in_vain_is_looked_for_again_once_it_is_there() -> None:
    source = """
def late(box):
    return box.made

class Box:
    pass

def fill(box):
    box.made = print

b = Box()
kept = late(b)
fill(b)
"""
    tree = ast.parse(source)
    interp = Interpreter(tree, ScopeTable(tree))
    interp.run()
    (kept,) = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == "kept")
    assert [getattr(value, "path", "") for value in interp.of(kept)] == ["builtins.print"]
