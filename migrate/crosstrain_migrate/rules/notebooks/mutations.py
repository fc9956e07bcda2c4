"""Whether code changes the object that a variable holds: by a method, by assigning a part, or in a function."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

from crosstrain_migrate.syntax.nodes import words

CHANGING = words("append extend insert add update pop clear remove setdefault appendleft")


_CONTAINERS = {"list", "dict", "set", "defaultdict", "deque"}


def changes(name: str, where: ast.AST) -> bool:
    """Whether a piece of code changes the object that a variable holds, by a method or by assigning a part of it."""
    for node in ast.walk(where):
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr=method)):
                in_place = method.endswith("_") and not method.endswith("__")
                changing = method in CHANGING or in_place or method.startswith(("add_", "load_"))
            case ast.Subscript(value=owner) | ast.Attribute(value=owner):
                changing = not isinstance(node.ctx, ast.Load)
            case _:
                continue
        if changing and _base(owner) == name:
            return True
    return False


def uses_methods(name: str, where: ast.AST) -> bool:
    """Whether a piece of code calls a method of the object that a variable holds."""
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and _is(name, n.func.value)
        for n in ast.walk(where)
    )


def is_filled(name: str, where: ast.AST, functions: Mapping[str, Sequence[ast.AST]], depth: int = 4) -> bool:
    """Whether one of these functions, itself or in what it calls, may change the object that it is given."""
    for call, given in _handed(name, where, functions):
        assert isinstance(call.func, ast.Name)
        for function in functions[call.func.id]:
            parameter = _parameter(function, call, given)
            if parameter is None or not depth:
                return True
            if changes(parameter, function) or uses_methods(parameter, function):
                return True
            if is_filled(parameter, function, functions, depth - 1):
                return True
    return False


def _handed(
    name: str, where: ast.AST, functions: Collection[str]
) -> Iterator[tuple[ast.Call, int | str | None]]:
    """The calls that give the variable to one of the functions, each with the position or the name."""
    for node in ast.walk(where):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            yield from ((node, at) for at, given in enumerate(node.args) if _is(name, given))
            yield from ((node, k.arg) for k in node.keywords if _is(name, k.value))


def _parameter(function: ast.AST, call: ast.Call, given: int | str | None) -> str | None:
    """The parameter for what a call gives at a position or by a name; None where it cannot be told."""
    if not isinstance(given, int):
        return given
    if not isinstance(function, ast.FunctionDef) or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    return names[given] if given < len(names) else None


def _is(name: str, node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _base(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_container(node: ast.expr) -> bool:
    made = isinstance(node, ast.Call) and getattr(node.func, "id", "") in _CONTAINERS
    return made or isinstance(node, ast.List | ast.Dict | ast.Set)
