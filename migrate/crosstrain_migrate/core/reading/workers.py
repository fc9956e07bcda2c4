"""What a data loader runs: which functions its workers do, for one row or to put a batch together, and whether its data set gives
the next line of an open file, or the next of an iterator, whatever index it is asked for.

A loader that is shared out by indices would give every process the same of these rows: one process has to read for all.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import Function, last_name, written

from .forms import is_method
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


def reads_in_order(script: Script) -> bool:
    """Whether a DataLoader reads such a data set."""
    return any(
        _goes_on(script, method)
        for call in script.calls
        if last_name(call.func) == "DataLoader"
        for value in _data_sets(script, call)
        if (cls := script.class_made(value)) is not None
        for method in script.methods(cls)
        if method.name == "__getitem__"
    )


def _data_sets(script: Script, loader: ast.Call) -> list[ast.expr]:
    """What a loader's data set may be."""
    given = [*loader.args[:1], *(k.value for k in loader.keywords if k.arg == "dataset")]
    return [v for one in given for v in (one, *script.values(script.frame(loader), written(one)))]


def _goes_on(script: Script, method: Function) -> bool:
    """Whether a method asks an object of `self` for what comes next, and does not read its index."""
    index = {one.arg for one in method.args.args[1:]}
    nodes = script.within(method)
    if any(isinstance(n, ast.Name) and n.id in index for n in nodes):
        return False
    calls = [n for n in nodes if isinstance(n, ast.Call)]
    asked = [call.func.value for call in calls if is_method(call, "readline")]
    asked += [call.args[0] for call in calls if last_name(call.func) == "next" and len(call.args) == 1]
    return any(written(one).startswith("self.") for one in asked)
