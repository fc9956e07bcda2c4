"""Training steps that a function makes: `step = make_step(net, train=True)`, which returns what goes backward inside it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from typing import Protocol

from crosstrain_migrate.syntax.nodes import Function, defaults_by_name, written
from crosstrain_migrate.syntax.scopes import ScopeTable
from crosstrain_migrate.syntax.walks import walk

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Definitions(Protocol):
    """What is asked of a `Script`."""

    table: ScopeTable

    def around(self, node: ast.AST) -> Iterator[ast.AST]: ...
    def dotted(self, node: ast.AST) -> str: ...
    def frame(self, node: ast.AST) -> ast.Module | Function: ...
    def functions(self, name: str) -> list[Function]: ...
    def given_by(self, call: ast.Call, function: Function) -> dict[str, ast.expr]: ...
    def stores(self, frame: ast.Module | Function, text: str) -> list[ast.Name | ast.Attribute]: ...
    def within(self, frame: ast.Module | Function) -> list[ast.AST]: ...


def made_steps(script: Definitions) -> dict[str, dict[ast.AST, Function]]:
    """By variable and frame, the step that a call makes, where the variable is bound to nothing else. One that was made with
    a constant that switches its training off, `make_step(net, train=False)`, trains nothing, and is none."""
    found: dict[str, dict[ast.AST, Function]] = defaultdict(dict)
    for assign in script.table.each(ast.Assign):
        target = assign.targets[0]
        if isinstance(target, ast.Name) and (step := _made(script, assign.value)) is not None:
            frame = script.frame(assign)
            if len(script.stores(frame, target.id)) == 1:
                found[target.id][frame] = step
    return found


def _made(script: Definitions, call: ast.expr) -> Function | None:
    """The nested function that the function of a call returns, whatever it is asked, and that trains as the call asks for."""
    if not isinstance(call, ast.Call):
        return None
    for maker in script.functions(script.dotted(call.func).rpartition(".")[2]):
        inner = {one.name: one for one in walk(maker) if isinstance(one, _FUNCTIONS) and one is not maker}
        returns = [one.value for one in script.within(maker) if isinstance(one, ast.Return)] if inner else []
        returned = {written(one) if one is not None else "" for one in returns}
        step = inner.get(returned.pop()) if len(returned) == 1 else None
        if step is not None and _trains(script, call, maker, step):
            return step
    return None


def _trains(script: Definitions, call: ast.Call, maker: Function, step: Function) -> bool:
    """Whether a step goes backward where no constant that its maker is given forbids it."""
    given = {**defaults_by_name(maker.args), **script.given_by(call, maker)}
    known = {
        name: bool(value.value)
        for name, value in given.items()
        if isinstance(value, ast.Constant) and not script.stores(maker, name)
    }
    passes = (one for one in walk(step) if isinstance(one, ast.Attribute) and one.attr == "backward")
    return any(not _is_switched_off(script, one, maker, known) for one in passes)


def _is_switched_off(script: Definitions, node: ast.AST, maker: Function, known: dict[str, bool]) -> bool:
    """Whether a test of a known parameter keeps a node from running: `if train:`, `if not train: ... else:`."""
    below = node
    for one in script.around(node):
        if isinstance(one, ast.If) and below is not one.test:
            is_not = isinstance(one.test, ast.UnaryOp) and isinstance(one.test.op, ast.Not)
            asked = one.test.operand if isinstance(one.test, ast.UnaryOp) and is_not else one.test
            scope = script.table.of_node[asked].resolve(asked.id) if isinstance(asked, ast.Name) else None
            value = known.get(written(asked)) if scope is not None and scope.node is maker else None
            if value is not None and (value != is_not) == (below in one.orelse):
                return True
        below = one
    return False
