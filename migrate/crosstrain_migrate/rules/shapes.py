"""CT602: shapes that are printed are those of one process's share of the batch, and stay so; the report says it.

What:   `print(images.shape)` of a batch of a prepared loader.
Why:    The first size is this process's number of rows; it is what its model sees, so it is left as it is.
Before: `print(images.shape)`
After:  `accelerator.print(images.shape)`
"""

from __future__ import annotations

import ast

from crosstrain_migrate.results import Severity
from crosstrain_migrate.roles.values import Shard

from .base import Context

RULE = "CT602"
SPEAKING = frozenset({"print", "info", "debug", "warning", "write", "log"})


def plan(context: Context) -> None:
    """Names the first place where the shape of a batch of prepared loaders is printed or logged."""
    for call in context.facts.calls:
        function = call.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in SPEAKING and any(_is_shape(context, part) for part in ast.walk(call)):
            context.note(
                RULE,
                call,
                "the shape printed here is that of this process's share of the batch",
                "nothing to do; the batch of all processes has their rows together",
                Severity.NOTE,
            )
            return


def _is_shape(context: Context, node: ast.AST) -> bool:
    """A whole shape: one of its sizes is a number, which other rules make the global one."""
    around = context.facts.table.parents.get(node)
    if isinstance(around, ast.Subscript) and around.value is node:
        return False
    loaders = context.subject.loaders
    return any(
        isinstance(v, Shard) and v.kind == "shape" and v.loader in loaders for v in context.facts.of(node)
    )
