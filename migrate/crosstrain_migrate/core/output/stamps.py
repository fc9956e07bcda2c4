"""Paths that differ by process: they hold the time, a random name, or a number of what is in a folder already."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

_STAMPS = frozenset(
    {
        "now",
        "today",
        "utcnow",
        "time",
        "time_ns",
        "strftime",
        "ctime",
        "asctime",
        "localtime",
        "uuid4",
        "uuid1",
    }
    | {"mkdtemp", "getpid", "TemporaryDirectory", "NamedTemporaryFile", "glob", "iglob", "listdir"}
)


def is_stamped(script: Script, path: ast.expr, depth: int = 4) -> bool:
    """Whether a path is put together from such a text, here or where its parts are bound."""
    for node in walk(path):
        if isinstance(node, ast.Call):
            if last_name(node.func) in _STAMPS:
                return True
            functions = script.functions(script.last(node.func)) if depth else []
            returned = [n.value for f in functions for n in walk(f) if isinstance(n, ast.Return) and n.value]
            if any(is_stamped(script, value, depth - 1) for value in returned):
                return True
        bound = _bound_to(script, node) if depth and isinstance(node, ast.Name | ast.Attribute) else []
        if any(is_stamped(script, value, depth - 1) for value in bound):
            return True
    return False


def _bound_to(script: Script, node: ast.Name | ast.Attribute) -> list[ast.expr]:
    """What a variable is bound to in its function or file, an attribute anywhere, a parameter where it is given."""
    frame = script.frame(node)
    if isinstance(node, ast.Attribute):
        return [value for one in script.frames for value in script.values(one, written(node))]
    if values := script.values(frame, node.id):
        return values
    if isinstance(frame, ast.Module):
        return []
    if node.id not in script.parameters(frame):
        return script.values(script.module(node), node.id)
    given = [script.argument_for(call, frame, node.id) for call in script.callers(frame)]
    return [value for value in given if value is not None]
