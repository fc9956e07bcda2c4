"""What the rules of placement have taken out of a script so far."""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.base import Context


class RemovedMoves:
    """The calls that move something and go, with what went along."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.facts = context.facts
        self.stripped: set[ast.AST] = set()  # calls that go, leaving what they were called on
        self.moved: dict[ast.AST, ast.expr] = {}  # calls of a helper that moves its argument, which it is
        self.gone: set[ast.AST] = set()  # nodes inside removed code
