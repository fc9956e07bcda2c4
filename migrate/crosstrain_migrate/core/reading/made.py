"""Training steps that a function makes: `step = make_step(net, train=True)`, which returns what goes backward inside it."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import Any

from crosstrain_migrate.syntax.nodes import Function, defaults_by_name
from crosstrain_migrate.syntax.walks import walk

from .code import Code
from .forms import FUNCTIONS


def made_steps(script: Code) -> dict[str, dict[ast.AST, Function]]:
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


def _made(script: Code, call: ast.expr) -> Function | None:
    """The nested function that the function of a call returns, whatever it is asked, and that trains as the call asks for."""
    if not isinstance(call, ast.Call):
        return None
    for maker in script.functions(script.dotted(call.func).rpartition(".")[2]):
        inner = {one.name: one for one in walk(maker) if isinstance(one, FUNCTIONS) and one is not maker}
        returns = [one.value for one in script.within(maker) if isinstance(one, ast.Return)] if inner else []
        returned = {one.id if isinstance(one, ast.Name) else "" for one in returns}
        step = inner.get(returned.pop()) if len(returned) == 1 else None
        if step is not None and _trains(script, call, maker, step):
            return step
    return None


def _trains(script: Code, call: ast.Call, maker: Function, step: Function) -> bool:
    """Whether a step goes backward where no constant that its maker is given forbids it."""
    known = constants(script, maker, script.given_by(call, maker))
    passes = (one for one in walk(step) if isinstance(one, ast.Attribute) and one.attr == "backward")
    return any(not is_switched_off(script, one, maker, known) for one in passes)


def constants(script: Code, function: Function, given: dict[str, ast.expr]) -> dict[str, Any]:
    """The parameters of a function that are constants by what it is given, or by default."""
    values = {**defaults_by_name(function.args), **given}.items()
    known = {name: one.value for name, one in values if isinstance(one, ast.Constant)}
    return {name: value for name, value in known.items() if not script.stores(function, name)}


def is_switched_off(script: Code, node: ast.AST, maker: Function, known: dict[str, Any]) -> bool:
    """Whether a test of a known parameter keeps a node from running: `if train:`, `if mode != "train": ... else:`, or one
    above it that returns."""
    below = node
    for one in script.around(node):
        if isinstance(one, ast.If) and below is not one.test:
            value = _truth(script, one.test, maker, known)
            if value is not None and value == (below in one.orelse):
                return True
        for above in _above(one, below):
            value = _truth(script, above.test, maker, known)
            arm = [] if value is None else above.body if value else above.orelse
            if arm and isinstance(arm[-1], ast.Return):
                return True
        below = one
    return False


def _above(block: ast.AST, statement: ast.AST) -> list[ast.If]:
    """The tests above a statement in its suite."""
    for suite in (getattr(block, "body", ()), getattr(block, "orelse", ())):
        if isinstance(suite, list) and statement in suite:
            return [one for one in suite[: suite.index(statement)] if isinstance(one, ast.If)]
    return []


def _truth(script: Code, test: ast.expr, maker: Function, known: dict[str, Any]) -> bool | None:
    """What a test of one known parameter comes to: `train`, `not train`, `mode == "train"`; None for any other."""
    match test:
        case ast.UnaryOp(op=ast.Not(), operand=inner):
            value = _truth(script, inner, maker, known)
            return None if value is None else not value
        case ast.Compare(
            left=ast.Name() as name, ops=[ast.Eq() | ast.NotEq() as is_], comparators=[ast.Constant(value=to)]
        ):
            return (
                (known[name.id] == to) == isinstance(is_, ast.Eq)
                if _is_of(script, name, maker, known)
                else None
            )
        case ast.Name():
            return bool(known[test.id]) if _is_of(script, test, maker, known) else None
    return None


def _is_of(script: Code, name: ast.Name, maker: Function, known: dict[str, Any]) -> bool:
    scope = script.table.of_node[name].resolve(name.id)
    return name.id in known and scope is not None and scope.node is maker
