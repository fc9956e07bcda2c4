"""The folders that a script adds to `sys.path`, as far as its text says which: nothing is run.

`sys.path.append(os.path.join(os.path.dirname(__file__), ".."))`, `sys.path.insert(0, str(ROOT / "common"))`, and the
like, of constants, of `__file__` and of variables that are set once at the file's top level to such expressions; also
through a function of the file, `add_path(lib)`.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

ADDS = frozenset({"append", "insert", "extend"})
SAME = {
    *("abspath", "realpath", "normpath", "expanduser", "fspath", "str"),
    *("resolve", "absolute", "Path", "PurePath"),
}
_DEPTH = 8


def added_folders(text: str, file: Path) -> list[str]:
    """The folders a file adds, absolute, in the order of its lines. Relative ones start at the file's own folder."""
    if "sys.path" not in text:
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    paths = _Paths(tree, file)
    found = (paths.of(given) for given in _added(tree))
    known = dict.fromkeys(os.path.normpath(file.parent / path) for path in found if path is not None)
    return list(known)


def _additions(tree: ast.Module) -> Iterator[ast.Call]:
    for node in walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=name, value=of)) if (
                name in ADDS and written(of) == "sys.path"
            ):
                yield node


def _added(tree: ast.Module) -> Iterator[ast.expr]:
    """What is added to `sys.path`; for a parameter of a function, what the function's callers give."""
    nodes = walk(tree)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    inside = {id(node): function for function in functions for node in walk(function)}
    for given in (one for call in _additions(tree) for one in _given(call)):
        function = inside.get(id(given))
        names = [one.arg for one in function.args.args] if function is not None else []
        if function is None or not isinstance(given, ast.Name) or given.id not in names:
            yield given
            continue
        for call in (
            one for one in nodes if isinstance(one, ast.Call) and written(one.func) == function.name
        ):
            named = [one.value for one in call.keywords if one.arg == given.id]
            yield from [*call.args[names.index(given.id) :][:1], *named]


def _given(call: ast.Call) -> list[ast.expr]:
    given = call.args[-1:]
    return [part for one in given for part in (one.elts if isinstance(one, ast.List | ast.Tuple) else [one])]


class _Paths:
    """What expressions of paths come to; None where the text does not say."""

    def __init__(self, tree: ast.Module, file: Path) -> None:
        self._file = str(file)
        assigned: dict[str, list[ast.expr]] = {}
        for statement in (one for one in tree.body if isinstance(one, ast.Assign)):
            for target in (one for one in statement.targets if isinstance(one, ast.Name)):
                assigned.setdefault(target.id, []).append(statement.value)
        self._set_once = {name: values[0] for name, values in assigned.items() if len(values) == 1}

    def of(self, node: ast.expr, depth: int = _DEPTH) -> str | None:
        if not depth:
            return None
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id="__file__"):
                return self._file
            case ast.Name(id=name) if name in self._set_once:
                return self.of(self._set_once[name], depth - 1)
            case ast.Attribute(attr="parent"):
                return self._above(node.value, 1, depth)
            case ast.Subscript(
                value=ast.Attribute(attr="parents", value=inner), slice=ast.Constant(value=int(number))
            ):
                return self._above(inner, number + 1, depth)
            case ast.Attribute(attr="pardir" | "curdir"):
                return ".." if node.attr == "pardir" else "."
            case ast.Subscript(value=ast.Attribute() as listed, slice=ast.Constant(value=0)) if (
                written(listed) == "sys.path"
            ):
                return os.path.dirname(self._file)  # noqa: PTH120
            case ast.BinOp(op=ast.Div() | ast.Add()):
                return self._joined(
                    [node.left, node.right], depth, "/" if isinstance(node.op, ast.Div) else ""
                )
            case ast.JoinedStr():
                parts = [v.value if isinstance(v, ast.FormattedValue) else v for v in node.values]
                return self._joined(parts, depth, "")
            case ast.Call():
                return self._called(node, depth)
        return None

    def _called(self, call: ast.Call, depth: int) -> str | None:
        name = last_name(call.func)
        if name in ("getcwd", "cwd") and not call.args:
            return "."
        if name in ("join", "joinpath") and isinstance(call.func, ast.Attribute):
            own = [call.func.value] if name == "joinpath" else []
            return self._joined([*own, *call.args], depth, "/")
        if name == "dirname" and call.args:
            return self._above(call.args[0], 1, depth)
        if name in SAME:
            inner = call.args[0] if call.args else getattr(call.func, "value", None)
            return self.of(inner, depth - 1) if isinstance(inner, ast.expr) else None
        return None

    def _above(self, node: ast.expr, levels: int, depth: int) -> str | None:
        path = self.of(node, depth - 1)
        for _ in range(levels if path is not None else 0):
            path = os.path.dirname(os.path.normpath(path or "."))  # noqa: PTH120
        return path

    def _joined(self, nodes: list[ast.expr], depth: int, between: str) -> str | None:
        parts = [self.of(node, depth - 1) for node in nodes]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return os.path.join(*known) if between else "".join(known)  # noqa: PTH118
