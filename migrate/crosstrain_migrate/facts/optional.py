"""Parameters that default to None: which branches a function takes, by which of them a call gives."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.syntax.reach import reaching_within
from crosstrain_migrate.syntax.scopes import ScopeTable
from crosstrain_migrate.syntax.walks import walk

Given = frozenset[tuple[str, bool]]  # (parameter, whether the call gives it)
Reaching = dict[ast.Name, frozenset[ast.AST]]


class Optional:
    """What becomes of a function's branches on parameters that may be None, by which of them a call gives."""

    def __init__(self, table: ScopeTable) -> None:
        self._table = table
        self._taken: dict[tuple[ast.AST, Given], dict[ast.If, bool]] = {}
        self._returns: dict[tuple[ast.AST, Given], list[tuple[ast.Return, Reaching]]] = {}

    def taken(self, function: ast.FunctionDef | ast.AsyncFunctionDef, given: Given) -> dict[ast.If, bool]:
        """What the tests on such parameters say."""
        key = function, given
        if key not in self._taken:
            names = [n for n in walk(function) if isinstance(n, ast.Name)]
            stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
            known = {name: value for name, value in given if name not in stored}
            branches = [n for n in walk(function) if isinstance(n, ast.If)]
            said = {n: _decided(n.test, known) for n in branches}
            self._taken[key] = {n: answer for n, answer in said.items() if answer is not None}
        return self._taken[key]

    def returns(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, given: Given
    ) -> list[tuple[ast.Return, Reaching]]:
        """The return statements that such a call may reach, with what each name there may be bound by."""
        key = function, given
        if key not in self._returns:
            reaching, reached = reaching_within(self._table, function, self.taken(function, given))
            self._returns[key] = [(statement, reaching) for statement in reached]
        return self._returns[key]


def _decided(test: ast.expr, known: dict[str, bool]) -> bool | None:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = _decided(test.operand, known)
        return None if inner is None else not inner
    if isinstance(test, ast.BoolOp):
        return _joined([_decided(part, known) for part in test.values], isinstance(test.op, ast.And))
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.left, ast.Name):
        return None
    none = isinstance(test.comparators[0], ast.Constant) and test.comparators[0].value is None
    value = known.get(test.left.id) if none else None
    if value is None or not isinstance(test.ops[0], ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
        return None
    return value if isinstance(test.ops[0], ast.IsNot | ast.NotEq) else not value


def _joined(answers: Iterable[bool | None], every: bool) -> bool | None:
    """`and` (every) or `or` of answers that may be unknown."""
    said = set(answers)
    if (not every) in said:
        return not every
    return None if None in said else every
