"""Classes that wrap a loader and do nothing but move its batches: what they make is the loader, elsewhere.

class DeviceLoader:                       # DeviceLoader(loader, device)
    def __iter__(self):
        for batch in self.loader:
            yield to_device(batch, self.device)
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.syntax.scopes import ScopeTable

from .movers import Function, Reader


def moving_wrappers(table: ScopeTable, movers: Iterable[ast.AST]) -> dict[ast.AST, str]:
    """Each such class, with the parameter of its constructor that is the loader."""
    helpers = frozenset(f.name for f in movers if isinstance(f, Function))
    found: dict[ast.AST, str] = {}
    for node in table.each(ast.ClassDef):
        if not node.decorator_list:
            parameter = _wrapped(node, helpers)
            if parameter is not None:
                found[node] = parameter
    return found


def _wrapped(cls: ast.ClassDef, helpers: frozenset[str]) -> str | None:
    methods = {s.name: s for s in cls.body if isinstance(s, Function)}
    rest = [s for s in cls.body if not isinstance(s, Function) and not _is_text(s)]
    if rest or set(methods) != {"__init__", "__iter__", "__len__"} or not _is_plain(cls):
        return None
    attributes = _attributes(methods["__init__"])
    iterated = _iterated(methods["__iter__"], helpers)
    measured = _measured(methods["__len__"])
    return attributes.get(iterated) if attributes and iterated and iterated == measured else None


def _is_plain(cls: ast.ClassDef) -> bool:
    return not cls.keywords and all(isinstance(b, ast.Name) and b.id == "object" for b in cls.bases)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _body(function: Function) -> list[ast.stmt]:
    return [s for s in function.body if not _is_text(s)]


def _attributes(init: Function) -> dict[str, str]:
    """The attributes that a constructor gives its parameters to, if it does nothing else."""
    parameters = {a.arg for a in init.args.args[1:]}
    found: dict[str, str] = {}
    for statement in _body(init):
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return {}
        for target, value in _pairs(statement.targets[0], statement.value):
            name = _own(target)
            if name is None or not isinstance(value, ast.Name) or value.id not in parameters:
                return {}
            found[name] = value.id
    return found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def _own(node: ast.expr) -> str | None:
    """`name` of `self.name`."""
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if own and isinstance(node, ast.Attribute) else None


def _measured(function: Function) -> str | None:
    """`name` of `return len(self.name)`."""
    body = _body(function)
    call = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "len" or len(call.args) != 1:
        return None
    return _own(call.args[0])


def _iterated(function: Function, helpers: frozenset[str]) -> str | None:
    """`name` of a loop over `self.name` that yields each batch, moved."""
    body = _body(function)
    loop = body[0] if len(body) == 1 else None
    if not isinstance(loop, ast.For) or loop.orelse:
        return None
    reader = Reader(function, "", helpers)
    reader.bind(loop.target)
    last = loop.body[-1]
    yielded = last.value if isinstance(last, ast.Expr) and isinstance(last.value, ast.Yield) else None
    if yielded is None or yielded.value is None or not reader.suite(loop.body[:-1]):
        return None
    parts = yielded.value.elts if isinstance(yielded.value, ast.Tuple) else [yielded.value]
    moved = all(reader.copy(part) for part in parts) and reader.moved
    return _own(loop.iter) if moved else None
