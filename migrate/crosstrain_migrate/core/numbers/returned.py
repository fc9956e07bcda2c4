"""What a step of the training that is a function of its own returns, `loss = step(model, optimizer, x, y)`, and the loss that a
number is read out of."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.core.training.losses import losses_in
from crosstrain_migrate.syntax.nodes import Function, last_name, written

_DEPTH = 3  # functions that return what another one returned
_OF_LOSS = ("item", "detach", "float", "cpu", "double", "clone")


def returns_loss(script: Script, roles: Roles, call: ast.expr, depth: int = _DEPTH) -> bool:
    """Whether a call returns the number of a trained loss, and nothing else."""
    functions = script.functions_of(call) if isinstance(call, ast.Call) and depth else []
    return bool(functions) and all(_gives_loss(script, roles, one, depth) for one in functions)


def _gives_loss(script: Script, roles: Roles, function: Function, depth: int) -> bool:
    returned = [node.value for node in script.within(function) if isinstance(node, ast.Return)]
    return bool(returned) and all(
        value is not None and _is_loss(script, roles, function, value, depth) for value in returned
    )


def _is_loss(script: Script, roles: Roles, frame: Frame, value: ast.expr, depth: int) -> bool:
    """`loss.item()`, `float(loss)`, a variable that holds it, or what another such function returns."""
    if is_method(value, "item") and not value.args:
        return written(value.func.value).removesuffix(".data") in losses_in(roles, frame)
    if isinstance(value, ast.Call) and last_name(value.func) == "float" and len(value.args) == 1:
        return written(value.args[0]) in losses_in(roles, frame)
    if isinstance(value, ast.Name):
        values = script.values(frame, value.id)
        return len(values) == 1 and _is_loss(script, roles, frame, values[0], depth - 1)
    return returns_loss(script, roles, value, depth - 1)


def without_tail(value: ast.expr) -> ast.expr:
    """`loss` of `loss.detach().item()` and of `float(loss)`; `x` of `loss.data`."""
    while True:
        if is_method(value, *_OF_LOSS):
            value = value.func.value
        elif (
            isinstance(value, ast.Call) and last_name(value.func) in ("float", "int") and len(value.args) == 1
        ):
            value = value.args[0]
        elif isinstance(value, ast.Attribute) and value.attr == "data":
            value = value.value
        elif (
            isinstance(value, ast.Subscript)
            and isinstance(value.value, ast.Attribute)
            and value.value.attr == "data"
        ):
            value = value.value  # `loss.data[0]`, as it was before PyTorch 0.4
        else:
            return value
