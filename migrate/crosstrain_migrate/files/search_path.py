"""The folders that a script adds to `sys.path`, as far as its text says which: nothing is run.

`sys.path.append(os.path.join(os.path.dirname(__file__), ".."))`, `sys.path.insert(0, str(ROOT / "common"))`, and the
like, of constants, of `__file__` and of variables that are set once at the file's top level to such expressions; also
through a function of the file that adds what it is given. A folder of a root that the text does not say is the nearest
above.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

from crosstrain_migrate.syntax.nodes import last_name, words, written
from crosstrain_migrate.syntax.walks import walk

ADDS = frozenset({"append", "insert", "extend"})
SAME = words("abspath realpath normpath expanduser fspath str resolve absolute Path PurePath")
_DEPTH = 8
_LEVELS = 4
_BLOCKS = (ast.If, ast.Try, ast.ExceptHandler, ast.With)


def added_folders(text: str, file: Path) -> list[str]:
    """The folders a file adds, absolute, in the order of its lines. Relative ones start at the file's own folder, else at the
    nearest above that has them, where the script may be started."""
    if "sys.path" not in text:
        return []
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return []
    paths = _Paths(tree, file)
    found = map(paths.of, (*_given(tree), *_given_through_functions(tree)))
    return list(dict.fromkeys(_from(file, path) for path in found if path is not None))


def _from(file: Path, path: str) -> str:
    levels = 1 if os.path.normpath(path).startswith(".") else _LEVELS  # of `..` and `.` any would do
    places = [os.path.normpath(above / path) for above in list(file.parents)[:levels]]
    return next((one for one in places if os.path.isdir(one)), places[0])  # noqa: PTH112


def _given(node: ast.AST) -> list[ast.expr]:
    """What a piece of code adds to `sys.path` itself."""
    found: list[ast.expr] = []
    for call in (one for one in walk(node) if isinstance(one, ast.Call)):
        is_method = isinstance(call.func, ast.Attribute) and call.func.attr in ADDS
        if is_method and written(call.func).startswith("sys.path."):
            for one in call.args[-1:]:
                found += one.elts if isinstance(one, ast.List | ast.Tuple) else [one]
    return found


def _given_through_functions(tree: ast.Module) -> Iterator[ast.expr]:
    """What the functions of the file that add an argument of theirs are given: `add_path(join(here, "lib"))`."""
    adding: dict[str, int] = {}  # which argument
    for function in (one for one in tree.body if isinstance(one, ast.FunctionDef)):
        names = [one.arg for one in function.args.args]
        added = [one.id for one in _given(function) if isinstance(one, ast.Name) and one.id in names]
        if added:
            adding[function.name] = names.index(added[0])
    for call in (one for one in walk(tree) if isinstance(one, ast.Call)):
        place = adding.get(call.func.id) if isinstance(call.func, ast.Name) else None
        if place is not None and place < len(call.args):
            yield call.args[place]


def _at_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a file is imported, also those under a condition: `if True:`, `try:`."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "handlers", "finalbody") if isinstance(statement, _BLOCKS) else ():
            yield from _at_top(getattr(statement, part, []))


class _Paths:
    """What expressions of paths come to; None where the text does not say."""

    def __init__(self, tree: ast.Module, file: Path) -> None:
        self._file = str(file)
        assigned: dict[str, list[ast.expr]] = {}
        for statement in (one for one in _at_top(tree.body) if isinstance(one, ast.Assign)):
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
        if between and parts[:1] == [None] and len(known) == len(parts) - 1 and ".." not in "/".join(known):
            above = (os.path.join(one, *known) for one in list(Path(self._file).parents)[:-1])  # noqa: PTH118
            return next((one for one in above if os.path.isdir(one)), None)  # noqa: PTH112
        if len(known) < len(parts):
            return None
        return os.path.join(*known) if between else "".join(known)  # noqa: PTH118
