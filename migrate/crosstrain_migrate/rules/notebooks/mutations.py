"""Whether code changes what a variable holds: by a method, by a part that it sets, in a function that gets it."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence

CHANGING = {
    "append",
    "extend",
    "insert",
    "add",
    "update",
    "pop",
    "clear",
    "remove",
    "setdefault",
    "appendleft",
}


def changes(name: str, where: ast.AST) -> bool:
    """Whether a piece of code changes the object that a variable holds, by a method's name or a part it sets."""
    for node in ast.walk(where):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            in_place = method.endswith("_") and not method.endswith("__")
            changing = method in CHANGING or in_place or method.startswith(("add_", "load_"))
            if changing and _base(node.func.value) == name:
                return True
        elif (
            isinstance(node, ast.Subscript | ast.Attribute)
            and not isinstance(node.ctx, ast.Load)
            and _base(node) == name
        ):
            return True
    return False


def calls_method(name: str, where: ast.AST) -> bool:
    """Whether a piece of code calls a method of the object that a variable holds."""
    return any(
        isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and _is(name, n.func.value)
        for n in ast.walk(where)
    )


def is_filled(name: str, where: ast.AST, functions: Mapping[str, Sequence[ast.AST]], depth: int = 4) -> bool:
    """Whether one of these functions, here or in what it calls, changes the variable that it is handed."""
    for call, given in _handed(name, where, functions):
        assert isinstance(call.func, ast.Name)
        for function in functions[call.func.id]:
            parameter = _parameter(function, call, given)
            if (
                parameter is None
                or not depth
                or changes(parameter, function)
                or calls_method(parameter, function)
            ):
                return True
            if is_filled(parameter, function, functions, depth - 1):
                return True
    return False


def _handed(
    name: str, where: ast.AST, functions: Collection[str]
) -> Iterator[tuple[ast.Call, int | str | None]]:
    """Each call of one of the functions that gets the variable: by position or by name."""
    for node in ast.walk(where):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            yield from ((node, at) for at, given in enumerate(node.args) if _is(name, given))
            yield from ((node, k.arg) for k in node.keywords if _is(name, k.value))


def _parameter(function: ast.AST, call: ast.Call, given: int | str | None) -> str | None:
    if isinstance(given, str) or not isinstance(function, ast.FunctionDef):
        return given if isinstance(given, str) else None
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    known = (
        given is not None and given < len(names) and not any(isinstance(a, ast.Starred) for a in call.args)
    )
    return names[given] if known and given is not None else None


def _is(name: str, node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _base(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def is_container(node: ast.expr) -> bool:
    if isinstance(node, ast.List | ast.Dict | ast.Set):
        return True
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return False
    return node.func.id in ("list", "dict", "set", "defaultdict", "deque")
