"""Why the rows of a number are not gathered."""

from __future__ import annotations

import ast

from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Refusal, finding


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
