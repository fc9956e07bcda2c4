"""Which functions the workers of a data loader run: for one row, or to put a batch together."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import Function, last_name

from .script import Script

FOR_ROWS = ("__getitem__", "__getitems__")
_GIVEN = ("collate_fn", "worker_init_fn")


def given_to_workers(script: Script) -> set[str]:
    """The names of functions that a loader is given, also as `partial(collate, ...)`, at once or by a variable."""
    given = [keyword.value for call in script.calls for keyword in call.keywords if keyword.arg in _GIVEN]
    named = {one.id for one in given if isinstance(one, ast.Name)}
    assigned = [one for one in script.table.each(ast.Assign) if isinstance(one.value, ast.Call)]
    given += [one.value for one in assigned if named & {last_name(target) for target in one.targets}]
    partials = [one for one in given if isinstance(one, ast.Call) and last_name(one.func) == "partial"]
    return {last_name(one) for one in (*given, *(p.args[0] for p in partials if p.args))}


def is_for_workers(script: Script, function: Function, given: set[str], depth: int = 3) -> bool:
    """Whether workers alone run a function: it is theirs, or theirs alone call it. given: what loaders are given."""
    if function.name in FOR_ROWS or function.name in given:
        return True
    calls = script.callers(function) if depth else []
    frames = [script.frame(call) for call in calls]
    return bool(frames) and all(
        not isinstance(one, ast.Module) and is_for_workers(script, one, given, depth - 1) for one in frames
    )
