"""For CT604: a loop that goes backward in every turn trains on all its loaders, as a function that several trainings call."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.syntax.walks import walk

AROUND = ast.If | ast.IfExp | ast.While | ast.Try | ast.ExceptHandler | ast.BoolOp
LEAVES = ast.Continue | ast.Break | ast.Return


def trains_every_batch(facts: Facts, loop: ast.AST) -> bool:
    """Whether no turn of a loop comes to its end without a backward pass."""
    return any(_is_always_run(facts, call, loop, frozenset()) for call, _ in facts.backward_calls)


def _is_always_run(facts: Facts, node: ast.AST, loop: ast.AST, seen: frozenset[ast.AST]) -> bool:
    """Whether every turn of `loop` runs `node`, which stands in it or in a function that it calls."""
    function = facts.enclosing_function(node)
    inside = facts.table.is_inside(node, loop)
    outer = loop if inside else function
    if outer is None or (not inside and function in seen) or not _is_unconditional(facts, node, outer):
        return False
    if inside or function is None:
        return inside
    return any(
        _is_always_run(facts, site, loop, seen | {function}) for site in facts.callers.get(function, ())
    )


def _is_unconditional(facts: Facts, node: ast.AST, outer: ast.AST) -> bool:
    for around in facts.table.ancestors(node):
        if around is outer:
            break
        if isinstance(around, AROUND):
            return False
    line = getattr(node, "lineno", 0)
    return not any(isinstance(n, LEAVES) and n.lineno < line for n in walk(outer))
