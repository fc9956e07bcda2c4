"""Data sets that give the next line of an open file, or the next of an iterator, whatever index they are asked for.

A loader that is shared out by indices would give every process the same rows: one process has to read for all.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import Function, last_name, written

from .forms import is_method
from .script import Script


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
