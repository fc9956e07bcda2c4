"""What the code around a tensor says of its rows: what is compared with the labels, or goes into a loss with them, has a
row for each of theirs, whatever it was computed by."""

from __future__ import annotations

import ast

from .interpretation import Interpretation
from .regions import batch_loop_around
from .values import Absent, External, FromBatch, Member, Symbol, Unknown, Value, Values

COMPARES = frozenset({"eq", "ne"})


def beside(interp: Interpretation, found: Values, other: Values) -> Values:
    """`found`, compared element by element with `other`: what could not be followed has the rows that `other` has."""
    rows = frozenset(v for v in other if isinstance(v, FromBatch) and v.kind == "rows" and not v.host)
    open_ones = {v for v in found if is_open(interp, v)}
    return (found - open_ones) | rows if rows and open_ones else found


def is_open(interp: Interpretation, value: Value) -> bool:
    """Whether a value depends on a batch by a function that could not be seen into."""
    if not isinstance(value, FromBatch) or value.kind != "other" or value.host or not value.origins:
        return False
    return all(isinstance(o, ast.Call) and _is_unseen(interp, o) for o in value.origins)


def _is_unseen(interp: Interpretation, call: ast.Call) -> bool:
    """Whether what is called is neither torch's nor a method of a tensor."""
    for value in interp.of(call.func):
        if isinstance(value, Symbol) and value.path.split(".")[0] in {"torch", "numpy", "builtins"}:
            return False
        if isinstance(value, Member) and isinstance(value.receiver, FromBatch):
            return False
        if isinstance(value, External) and not interp.is_module(value) and value.path.startswith("torch."):
            return False
    return True


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
    """Whether a side may be something else than rows: a number that no batch has to do with is none."""
    if any(is_open(interp, v) for v in values):
        return True
    if not any(isinstance(v, Unknown) and not isinstance(v, Absent) for v in values):
        return False
    loop = batch_loop_around(interp, side)
    bound = interp.reaching.get(side, frozenset()) if isinstance(side, ast.Name) else frozenset()
    made = [s for d in bound if isinstance(s := interp.table.statement_of(d), ast.Assign)]
    anew = loop is not None and any(interp.table.is_inside(s, loop) for s in made)
    return anew or any(isinstance(v, FromBatch) for v in values)
