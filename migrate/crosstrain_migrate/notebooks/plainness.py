"""Whether a value is plain: numbers, texts and containers of them, which travel from one process to another."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator, Sequence

from .needs import Statements, assignments

# Whatever they are given.
_TO_PLAIN = {"len", "float", "int", "bool", "str", "round", "repr", "range"}
_OF_PLAIN = {
    "sum",
    "min",
    "max",
    "abs",
    "sorted",
    "list",
    "dict",
    "tuple",
    "set",
    "zip",
    "enumerate",
    "defaultdict",
}
_METHODS = {"item", "tolist", "format", "copy", "keys", "values", "items", "append"}
_MODULES = {"time", "math", "np", "numpy", "statistics", "datetime", "os"}
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


class Plain:
    """`scope`: the statements that set a name; functions are looked into with their own."""

    def __init__(self, notebook: Statements) -> None:
        self.notebook = notebook

    def value(self, node: ast.expr, scope: Sequence[ast.stmt], seen: frozenset[str] = frozenset()) -> bool:
        match node:
            case ast.Constant() | ast.JoinedStr() | ast.Compare():
                return True
            case ast.Name():
                return self.name(node.id, scope, seen)
            case ast.Call():
                return self._call(node, scope, seen)
            case ast.Subscript() | ast.Starred():
                return self.value(node.value, scope, seen)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self.value(node.elt, scope, seen)
            case ast.IfExp():
                return self.value(node.body, scope, seen) and self.value(node.orelse, scope, seen)
            case (
                ast.BinOp() | ast.UnaryOp() | ast.BoolOp() | ast.Tuple() | ast.List() | ast.Set() | ast.Dict()
            ):
                inner = (n for n in ast.iter_child_nodes(node) if isinstance(n, ast.expr))
                return all(self.value(n, scope, seen) for n in inner)
        return False

    def name(self, name: str, scope: Sequence[ast.stmt], seen: frozenset[str] = frozenset()) -> bool:
        """Whether all that `scope` puts into a variable, and into what it holds, is plain."""
        if name in seen:
            return True
        seen |= {name}
        values = [value for found, value in assignments(scope) if found == name]
        counted = any(
            name in _counted(node) for s in scope for node in ast.walk(s) if isinstance(node, ast.For)
        )
        put = [value for s in scope for value in put_into(name, s)]
        return bool(values or counted) and all(self.value(value, scope, seen) for value in (*values, *put))

    def _call(self, node: ast.Call, scope: Sequence[ast.stmt], seen: frozenset[str]) -> bool:
        called = node.func
        if isinstance(called, ast.Attribute):
            of_module = isinstance(called.value, ast.Name) and called.value.id in _MODULES
            return called.attr in _METHODS or (of_module and self._all(node.args, scope, seen))
        if not isinstance(called, ast.Name):
            return False
        if called.id in _TO_PLAIN:
            return True
        if called.id in _OF_PLAIN:
            types = {"list", "dict", "int", "float", "set"}
            given = [a for a in node.args if not (isinstance(a, ast.Name) and a.id in types)]
            return self._all(given, scope, seen)
        function = self.notebook.defined.get(called.id) or next(
            iter(self.notebook.outside.get(called.id, ())), None
        )
        return isinstance(function, ast.FunctionDef) and self.returned(function, seen)

    def returned(self, function: ast.FunctionDef, seen: frozenset[str] = frozenset()) -> bool:
        """Whether a function of the notebook returns plain values alone."""
        mark = f"{function.name}()"
        values = [n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]
        return mark in seen or self._all(values, function.body, seen | {mark})

    def _all(self, nodes: Iterable[ast.expr], scope: Sequence[ast.stmt], seen: frozenset[str]) -> bool:
        return all(self.value(node, scope, seen) for node in nodes)


def _counted(node: ast.For) -> set[str]:
    """The names that a loop counts with: `for i in range(n)`, `for i, _ in enumerate(x)`."""
    called = (
        node.iter.func.id if isinstance(node.iter, ast.Call) and isinstance(node.iter.func, ast.Name) else ""
    )
    counter = node.target
    if called == "enumerate" and isinstance(counter, ast.Tuple):
        counter = counter.elts[0]
    return (
        {counter.id}
        if called in ("range", "trange", "enumerate") and isinstance(counter, ast.Name)
        else set()
    )


def put_into(name: str, where: ast.AST) -> Iterator[ast.expr]:
    """What is put into the container that a variable holds, or into one inside it."""
    for node in ast.walk(where):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGING:
            if _base(node.func.value) == name:
                yield from (a for a in node.args if not isinstance(a, ast.Constant))
        elif isinstance(node, ast.Assign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Subscript | ast.Attribute) and _base(t) == name for t in targets):
                yield node.value


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


def is_handed(name: str, where: ast.AST, functions: Collection[str]) -> bool:
    """Whether a piece of code hands a variable to one of these functions, which may change what it holds."""
    for node in ast.walk(where):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in functions:
            given = (*node.args, *(keyword.value for keyword in node.keywords))
            if any(_is(name, argument) for argument in given):
                return True
    return False


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
