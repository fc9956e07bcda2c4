"""Parameters that default to None: which branches a function takes, depending on which of them a call gives."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.reach import reaching_within
from crosstrain_migrate.syntax.scopes import ScopeTable
from crosstrain_migrate.syntax.walks import walk

Given = frozenset[tuple[str, bool]]  # (parameter, whether the call gives it)
Reaching = dict[ast.Name, frozenset[ast.AST]]


class OptionalParameters:
    """Which branches and returns of a function a call may reach, depending on the optional parameters that it gives."""

    def __init__(self, table: ScopeTable) -> None:
        self._table = table
        self._decided_tests: dict[tuple[ast.AST, Given], dict[ast.If, bool]] = {}
        self._returns: dict[tuple[ast.AST, Given], list[tuple[ast.Return, Reaching]]] = {}

    def decided_tests(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, given: Given
    ) -> dict[ast.If, bool]:
        """The tests on such parameters that are decided, and how."""
        key = function, given
        if key not in self._decided_tests:
            nodes = walk(function)
            stored = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            known = {name: value for name, value in given if name not in stored}
            said = {n: _decided(n.test, known) for n in nodes if isinstance(n, ast.If)}
            self._decided_tests[key] = {n: answer for n, answer in said.items() if answer is not None}
        return self._decided_tests[key]

    def returns(
        self, function: ast.FunctionDef | ast.AsyncFunctionDef, given: Given
    ) -> list[tuple[ast.Return, Reaching]]:
        """The return statements that such a call may reach, with what each name there may be bound by."""
        key = function, given
        if key not in self._returns:
            reaching, reached = reaching_within(self._table, function, self.decided_tests(function, given))
            self._returns[key] = [(statement, reaching) for statement in reached]
        return self._returns[key]


def _decided(test: ast.expr, known: dict[str, bool]) -> bool | None:
    """What a test says; None where that depends on more than the known parameters."""
    match test:
        case ast.UnaryOp(op=ast.Not()):
            inner = _decided(test.operand, known)
            return None if inner is None else not inner
        case ast.BoolOp():
            ends = isinstance(test.op, ast.Or)  # the answer that needs no other
            said = {_decided(part, known) for part in test.values}
            return ends if ends in said else None if None in said else not ends
        case ast.Compare(left=ast.Name(id=name), ops=[op], comparators=[ast.Constant(value=None)]):
            if name not in known or not isinstance(op, ast.Is | ast.IsNot | ast.Eq | ast.NotEq):
                return None
            return known[name] == isinstance(op, ast.IsNot | ast.NotEq)
    return None
