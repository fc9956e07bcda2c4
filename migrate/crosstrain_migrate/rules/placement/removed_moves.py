"""What the rules of placement have taken out of a script so far."""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.scopes import Scope


class RemovedMoves:
    """The calls that move something and go, and everything that goes with them."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.stripped: set[ast.AST] = set()  # calls that go, leaving what they were called on
        self.moved: dict[ast.AST, ast.expr] = {}  # calls of a helper that moves its argument, which it is
        self.gone: set[ast.AST] = set()  # nodes inside removed code

    def reads_left(self, scope: Scope, name: str) -> list[ast.Name]:
        """The uses of a variable that no edit has taken away."""
        return [
            n for n in self.facts.mentions(scope, name) if isinstance(n.ctx, ast.Load) and n not in self.gone
        ]

    def reads_left_of(self, bound: ast.Name) -> list[ast.Name]:
        """`reads_left` of the variable that a name binds."""
        scope = self.facts.table.of_node[bound].resolve(bound.id)
        return self.reads_left(scope, bound.id) if scope is not None else []
