"""Rows of a loop's last batch that are read behind the loop, where its loader is no longer in hand."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values
from .ungathered import Ungathered


def check_in_loop(facts: Facts, rule: str, node: ast.expr) -> None:
    """Raises Ungathered where every value that an expression takes from the batch was bound in a loop that is over."""
    names = [n for n in walk(node) if isinstance(n, ast.Name) and batch_values(facts, n)]
    if names and all(_is_left_behind(facts, name) for name in names):
        raise Ungathered(
            rule,
            node,
            "the loop over its loader is over here, so nothing tells the rows of this last batch from those that only "
            "complete it",
            "compute the number of all processes inside the loop, and read that behind it",
        )


def _is_left_behind(facts: Facts, name: ast.Name) -> bool:
    definitions = facts.interp.reaching.get(name, frozenset())
    return bool(definitions) and all(_loop_is_over(facts, d, name) for d in definitions)


def _loop_is_over(facts: Facts, definition: ast.AST, name: ast.Name) -> bool:
    if facts.table.of_node[definition] is not facts.table.of_node[name]:
        return False
    loop = facts.batch_loop_around(definition)
    return isinstance(loop, ast.For | ast.AsyncFor) and not facts.table.is_inside(name, loop)
