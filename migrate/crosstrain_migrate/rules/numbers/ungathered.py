"""Why the rows of a number are not gathered."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Refusal, finding
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values


class Ungathered(Refusal):
    """A number that cannot be made global. In training it stays each process's own."""

    def __init__(self, rule: str, node: ast.expr, why: str, remedy: str) -> None:
        reason = f"`{ast.unparse(node)}` depends on this process's share of the batch, and {why}"
        super().__init__(finding(rule, node, reason, remedy, Severity.REFUSED))
        self.node, self.why, self.remedy = node, why, remedy


class NotAgain(Exception):
    """A loss that cannot be computed again over the rows of all processes: it is reduced instead."""

    def __init__(self, node: ast.expr) -> None:
        super().__init__(ast.unparse(node))
        self.node = node


def inside_module(rule: str, node: ast.expr) -> Exception:
    return Ungathered(
        rule,
        node,
        "it is computed inside a module, which cannot communicate in the middle of its forward",
        "return the rows from the module, and read or print the number outside",
    )


def check_in_loop(facts: Facts, rule: str, node: ast.expr) -> None:
    """Raises Ungathered where every value that an expression takes from the batch was bound in a loop that is over:
    the loader is no longer in hand there."""
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
    bound = facts.bindings(name)
    return bool(bound) and all(_loop_is_over(facts, d, name) for d in bound)


def _loop_is_over(facts: Facts, definition: ast.AST, name: ast.Name) -> bool:
    loop = facts.batch_loop_around(definition)
    own = facts.table.of_node[definition] is facts.table.of_node[name]
    return own and isinstance(loop, ast.For | ast.AsyncFor) and not facts.table.is_inside(name, loop)
