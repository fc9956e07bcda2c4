"""Dead code of one process: branches that it does not take, and code below a branch in which it always returns."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import chain, pairwise

from crosstrain_migrate.syntax.scopes import ScopeTable
from crosstrain_migrate.syntax.walks import walk

from .constant_folding import PENDING, KnownValue


class DeadCode:
    """value: evaluates an expression, where it is certain. Only values that follow from the launch make code dead."""

    def __init__(self, table: ScopeTable, value: Callable[[ast.expr], KnownValue | None]) -> None:
        self.table = table
        self.value = value
        self._dead: dict[ast.AST, bool] = {}
        self._returning: dict[ast.If, bool] = {}
        self._unsettled = False  # whether what was just asked depends on a value that is being evaluated

    def dead(self, node: ast.AST) -> bool:
        """Whether `node` stands in a branch that the process does not take, or below one in which it always returns."""
        if node in self._dead:
            return self._dead[node]
        self._dead[node] = False
        before, self._unsettled = self._unsettled, False
        result = self._is_dead(node)
        if result or not self._unsettled:
            self._dead[node] = result
        else:
            del self._dead[node]  # a test on the way is being evaluated: ask again when it is known
        self._unsettled = before or (self._unsettled and not result)
        return result

    def _decided(self, test: ast.expr) -> KnownValue | None:
        """The value of a test that follows from the launch; notes where it may still change."""
        found = self.value(test)
        if found is PENDING:
            self._unsettled = True
            return None
        return found if found is not None and found.from_launch else None

    def _is_dead(self, node: ast.AST) -> bool:
        for child, around in pairwise(chain((node,), self.table.ancestors(node))):
            if isinstance(around, ast.If | ast.IfExp) and child is not around.test:
                test = self._decided(around.test)
                body = child is around.body if isinstance(around, ast.IfExp) else child in around.body
                if test is not None and test.truth is not body:
                    return True
            handles = isinstance(around, ast.Try) and isinstance(child, ast.ExceptHandler)
            if handles and self._imports_apex(around):
                return True
            if isinstance(child, ast.stmt) and self._behind_exit(child, around):
                return True
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                break
        return False

    @staticmethod
    def _imports_apex(node: ast.AST) -> bool:
        """Whether a `try` imports apex: the fallback for a machine without apex is not needed either."""
        body = getattr(node, "body", ())
        names = [s.module or "" for s in body if isinstance(s, ast.ImportFrom)]
        names += [alias.name for s in body if isinstance(s, ast.Import) for alias in s.names]
        return any(name.split(".")[0] == "apex" for name in names)

    def _behind_exit(self, statement: ast.stmt, around: ast.AST) -> bool:
        """Whether the process always returns in an earlier statement of the same suite."""
        body = getattr(around, "body", None)
        if not isinstance(body, list) or statement not in body:
            return False
        return any(self.leaves(earlier) for earlier in body[: body.index(statement)])

    def leaves(self, statement: ast.stmt) -> bool:
        """Whether the process always returns in `statement`, because of how it was launched."""
        if not isinstance(statement, ast.If) or not self._returns(statement):
            return False
        test = self._decided(statement.test)
        if test is None:
            return False
        taken = statement.body if test.truth else statement.orelse
        return any(isinstance(s, ast.Return) or self.leaves(s) for s in taken)

    def _returns(self, statement: ast.If) -> bool:
        """Whether a statement contains a `return`; cached, because it is asked for each statement below."""
        found = self._returning.get(statement)
        if found is None:
            found = any(isinstance(n, ast.Return) for n in walk(statement))
            self._returning[statement] = found
        return found
