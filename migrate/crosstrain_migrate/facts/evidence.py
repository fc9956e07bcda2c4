"""What the code around a tensor says of its rows: what is compared with the labels, or goes into a loss with them, has
one row for each label, whatever function computed it."""

from __future__ import annotations

import ast

from .interpretation import Interpretation
from .regions import batch_loop_around
from .values import UNKNOWN, External, FromBatch, Member, Symbol, Value, Values

COMPARES = frozenset({"eq", "ne"})


def with_rows_of(interp: Interpretation, found: Values, other: Values) -> Values:
    """`found`, compared element by element with `other`: what an unknown function computed has the rows of `other`."""
    rows = frozenset(v for v in other if isinstance(v, FromBatch) and v.kind == "rows" and not v.host)
    unknown = {v for v in found if is_of_unknown_function(interp, v)}
    return (found - unknown) | rows if rows and unknown else found


def is_of_unknown_function(interp: Interpretation, value: Value) -> bool:
    """Whether an unknown function computed a value from a batch."""
    if not isinstance(value, FromBatch) or value.kind != "other" or value.host or not value.origins:
        return False
    return all(isinstance(o, ast.Call) and _is_unseen(interp, o) for o in value.origins)


def _is_unseen(interp: Interpretation, call: ast.Call) -> bool:
    """Whether what is called is neither torch's nor a method of a tensor."""

    def is_known(value: Value) -> bool:
        if isinstance(value, Symbol):
            return value.path.split(".")[0] in {"torch", "numpy", "builtins"}
        if isinstance(value, External):
            return value.path.startswith("torch.") and not interp.is_module(value)
        return isinstance(value, Member) and isinstance(value.receiver, FromBatch)

    return not any(map(is_known, interp.of(call.func)))


def is_assumed(interp: Interpretation, node: ast.AST) -> bool:
    """Whether a comparison has rows only because one of its sides has."""
    sides: list[ast.expr] = []
    if isinstance(node, ast.Compare) and all(isinstance(op, ast.Eq | ast.NotEq) for op in node.ops):
        sides = [node.left, *node.comparators]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in COMPARES:
        sides = [node.func.value, *node.args]
    values = [interp.of(side) for side in sides]
    rows = any(isinstance(v, FromBatch) and v.kind == "rows" for side in values for v in side)
    return rows and any(_is_unsure(interp, *pair) for pair in zip(sides, values, strict=True))


def _is_unsure(interp: Interpretation, side: ast.expr, values: Values) -> bool:
    """Whether a side may be something else than rows; a number that does not depend on the batch is not in doubt."""
    if any(is_of_unknown_function(interp, v) for v in values):
        return True
    if not values & UNKNOWN:
        return False
    loop = batch_loop_around(interp, side)
    made = (interp.table.statement_of(d) for d in interp.bindings(side))
    anew = loop is not None and any(
        isinstance(s, ast.Assign) and interp.table.is_inside(s, loop) for s in made
    )
    return anew or any(isinstance(v, FromBatch) for v in values)
