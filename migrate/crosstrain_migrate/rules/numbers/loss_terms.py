"""The variables that a trained loss is added up from: `loss_c` of `loss = loss_x + 0.1 * loss_c; loss.backward()`.

Such a term may be read as the loss itself may: averaged over the processes where it is no mean over rows.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts

from .batch_values import batch_values
from .bindings import assigned


def terms(facts: Facts) -> frozenset[ast.AST]:
    """The bindings of the variables that a trained loss is, or is added up from."""
    found: set[ast.AST] = set()
    work = [loss for _, loss in facts.backward_calls]
    while work:
        for part in _added_up(facts, work.pop()):
            fresh = facts.bindings(part) - found
            found |= fresh
            work += [value for value in (_value_of(facts, d) for d in fresh) if value is not None]
    return frozenset(found)


def is_trained(facts: Facts, node: ast.expr, trained: frozenset[ast.AST], depth: int = 4) -> bool:
    """Whether `node` is such a variable, or is added up from such alone."""
    return depth > 0 and all(_is_term(facts, part, trained, depth) for part in _added_up(facts, node))


def _is_term(facts: Facts, part: ast.expr, trained: frozenset[ast.AST], depth: int) -> bool:
    values = {d: _value_of(facts, d) for d in facts.bindings(part)}
    return bool(values) and all(
        d in trained or (v is not None and is_trained(facts, v, trained, depth - 1))
        for d, v in values.items()
    )


def _added_up(facts: Facts, node: ast.expr) -> list[ast.expr]:
    """The terms of a sum, without factors that do not depend on the batch; anything else is its only term."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _added_up(facts, node.operand)
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return _added_up(facts, node.value)
    if not isinstance(node, ast.BinOp):
        return [node]
    sides = [side for side in (node.left, node.right) if batch_values(facts, side)]
    match node.op:
        case ast.Add() | ast.Sub():
            splits = True
        case ast.Mult():
            splits = len(sides) == 1
        case ast.Div():
            splits = sides == [node.left]
        case _:
            splits = False
    return [part for side in sides for part in _added_up(facts, side)] if splits else [node]


def _value_of(facts: Facts, definition: ast.AST) -> ast.expr | None:
    """What is assigned, or added, to a variable alone."""
    statement = facts.table.statement_of(definition)
    if isinstance(statement, ast.AugAssign):
        return statement.value if isinstance(statement.op, ast.Add | ast.Sub) else None
    return assigned(facts, definition)
