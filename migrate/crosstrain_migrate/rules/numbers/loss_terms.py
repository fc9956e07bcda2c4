"""What is trained, and what it is added up from: `loss_c` of `loss = loss_x + 0.1 * loss_c; loss.backward()`.

Such a term may be read as the loss itself may: averaged over processes where it is no mean over rows.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import FromBatch


def terms(facts: Facts) -> frozenset[ast.AST]:
    """The bindings of the variables that a trained loss is, or is added up from."""
    found: set[ast.AST] = set()
    work = [loss for _, loss in facts.backward_calls]
    while work:
        for part in _added_up(facts, work.pop()):
            for definition in _bindings(facts, part) - found:
                found.add(definition)
                value = _bound_to(facts, definition)
                if value is not None:
                    work.append(value)
    return frozenset(found)


def is_trained(facts: Facts, node: ast.expr, trained: frozenset[ast.AST], depth: int = 4) -> bool:
    """Whether `node` is such a variable, or is added up from such alone."""
    return depth > 0 and all(_is_term(facts, part, trained, depth) for part in _added_up(facts, node))


def _is_term(facts: Facts, part: ast.expr, trained: frozenset[ast.AST], depth: int) -> bool:
    values = {d: _bound_to(facts, d) for d in _bindings(facts, part)}
    return bool(values) and all(
        d in trained or (v is not None and is_trained(facts, v, trained, depth - 1))
        for d, v in values.items()
    )


def _bindings(facts: Facts, part: ast.expr) -> frozenset[ast.AST]:
    return facts.interp.reaching.get(part, frozenset()) if isinstance(part, ast.Name) else frozenset()


def _added_up(facts: Facts, node: ast.expr) -> list[ast.expr]:
    """What a sum is made of, factors that are no shares left out; anything else is its only part."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _added_up(facts, node.operand)
    if isinstance(node, ast.Attribute) and node.attr == "data":
        return _added_up(facts, node.value)
    if not isinstance(node, ast.BinOp):
        return [node]
    sides = [side for side in (node.left, node.right) if _depends_on_share(facts, side)]
    adds = isinstance(node.op, ast.Add | ast.Sub)
    scales = (
        sides == [node.left]
        if isinstance(node.op, ast.Div)
        else isinstance(node.op, ast.Mult) and len(sides) == 1
    )
    return [part for side in sides for part in _added_up(facts, side)] if adds or scales else [node]


def _depends_on_share(facts: Facts, node: ast.expr) -> bool:
    return any(isinstance(v, FromBatch) for v in facts.of(node))


def _bound_to(facts: Facts, definition: ast.AST) -> ast.expr | None:
    """What is assigned, or added, to a variable alone."""
    statement = facts.table.statement_of(definition)
    if isinstance(statement, ast.Assign) and statement.targets == [definition]:
        return statement.value
    added = isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add | ast.Sub)
    return statement.value if isinstance(statement, ast.AugAssign) and added else None
