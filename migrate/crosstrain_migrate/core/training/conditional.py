"""What a script makes under a condition, `if args.poses: second = SGD(...)`, and so may not have where it trains."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.script import Frame, Script
from crosstrain_migrate.syntax.nodes import last_name, place_of
from crosstrain_migrate.syntax.program import is_main_test

from .holders import Held

_EXITS = {"exit", "_exit", "quit", "error"}


def made_under_condition(script: Script, one: Held) -> tuple[Frame, ast.stmt] | None:
    """The last statement that binds an object, and its frame, where all of them are in one suite of an `if` that does not
    hold the use, and without which the script goes on."""
    cls = script.class_of(one.frame) if one.text.startswith("self.") else None
    frames: list[Frame] = [one.frame] if cls is None else [*script.methods(cls)]
    if any(one.text in script.parameters(frame) for frame in frames if not isinstance(frame, ast.Module)):
        return None
    bound = [(script.statement(store), frame) for frame in frames for store in script.stores(frame, one.text)]
    suites = {id(script.suite_of(statement)) for statement, _ in bound}
    if len(suites) != 1:
        return None
    last, home = max(bound, key=lambda pair: place_of(pair[0]))
    condition = script.parent(last)
    if not isinstance(condition, ast.If) or is_main_test(condition):
        return None
    other = condition.orelse if last in condition.body else condition.body
    if script.table.is_inside(one.use, condition) or _ends(other):
        return None
    return home, last


def _ends(suite: list[ast.stmt]) -> bool:
    """Whether nothing runs behind a suite."""
    last = suite[-1] if suite else None
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return last_name(last.value.func) in _EXITS
    return isinstance(last, ast.Raise | ast.Return | ast.Continue | ast.Break)
