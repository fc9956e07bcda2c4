"""Functions and classes that move a batch to a device, however nested it is, and change nothing else.

Research code is full of a `to_device` that goes through dicts, lists and tuples, and of classes that wrap a loader to
call it:

class DeviceLoader:                       # DeviceLoader(loader, device)
    def __iter__(self):
        for batch in self.loader:
            yield to_device(batch, self.device)

What such a function returns is its argument, elsewhere; what such a class makes is the loader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.scopes import ScopeTable
from crosstrain_migrate.syntax.walks import walk

from .arguments import pairs_of, positional_of

Function = ast.FunctionDef | ast.AsyncFunctionDef
MOVES = frozenset({"to", "cuda"})
CONTAINERS = frozenset({"tuple", "list", "dict", "type", "__class__"})


def moving_functions(table: ScopeTable) -> dict[ast.AST, str]:
    """The functions that move what they are given, each with the name of that parameter."""
    found: dict[ast.AST, str] = {}
    for node in table.scopes:
        if isinstance(node, Function) and not node.decorator_list:
            method = isinstance(table.parents.get(node), ast.ClassDef)
            moved = [a.arg for a in positional_of(node)][method:][:1]
            if moved and _Reader(node, moved[0]).moves():
                found[node] = moved[0]
    return found


def moving_wrappers(table: ScopeTable, movers: Iterable[ast.AST]) -> dict[ast.AST, str]:
    """The classes that move the batches of a loader, each with the parameter of its constructor that is the loader."""
    helpers = frozenset(f.name for f in movers if isinstance(f, Function))
    classes = (node for node in table.each(ast.ClassDef) if not node.decorator_list)
    wrapped = {node: _wrapped(node, helpers) for node in classes}
    return {node: parameter for node, parameter in wrapped.items() if parameter is not None}


class _Reader:
    """Reads one function. `copies` are the names that hold the argument, a part of it, or a copy that is being made;
    `helpers` the names of functions that are known to move their first argument."""

    def __init__(self, function: Function, parameter: str, helpers: frozenset[str] = frozenset()) -> None:
        self.function = function
        self.helpers = helpers
        self.copies = {parameter}
        self.moved = False
        self.returned = False

    def moves(self) -> bool:
        return self.suite(_body(self.function)) and self.moved and self.returned

    def suite(self, statements: list[ast.stmt]) -> bool:
        return all(self.statement(s) for s in statements)

    def statement(self, node: ast.stmt) -> bool:
        match node:
            case ast.If():
                return self.suite(node.body) and self.suite(node.orelse)
            case ast.Return():
                self.returned = True
                return node.value is not None and self.copy(node.value)
            case ast.For():
                return not node.orelse and self.loop(node.iter, node.target) and self.suite(node.body)
            case ast.Assign(targets=[target]):
                return self.assigned(target, node.value)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=made, attr="append"), args=[part, *_])):
                return self.copy(made) and self.copy(part)  # found.append(to_device(part, device))
            case _:
                return isinstance(node, ast.Raise | ast.Pass)

    def assigned(self, target: ast.expr, value: ast.expr) -> bool:
        if isinstance(target, ast.Subscript):
            return self.copy(target.value) and self.copy(value)
        if not isinstance(target, ast.Name) or not (_is_empty(value) or self.copy(value)):
            return False
        self.copies.add(target.id)
        return True

    def loop(self, over: ast.expr, target: ast.expr) -> bool:
        """Whether a loop goes over the argument; its targets then hold parts of it."""
        found = self.goes_over(over)
        if found:
            self.bind(target)
        return found

    def goes_over(self, node: ast.expr) -> bool:
        match node:
            case ast.Call(func=ast.Attribute(value=owner, attr="items" | "values" | "keys")):
                return self.copy(owner)
            case ast.Call(func=ast.Name(id="enumerate"), args=[over, *_]):
                return self.copy(over)
            case ast.Call(func=ast.Attribute() | ast.Name()):
                return False
            case _:
                return self.copy(node)

    def bind(self, target: ast.expr) -> None:
        self.copies.update(n.id for n in walk(target) if isinstance(n, ast.Name))

    def copy(self, node: ast.expr) -> bool:
        """Whether an expression is the argument or a part of it, moved or not."""
        match node:
            case ast.Name():
                return node.id in self.copies
            case ast.Starred() | ast.Subscript():
                return self.copy(node.value)
            case ast.IfExp():
                return self.copy(node.body) and self.copy(node.orelse)
            case ast.ListComp(generators=[one]) | ast.GeneratorExp(generators=[one]):
                return not one.ifs and self.loop(one.iter, one.target) and self.copy(node.elt)
            case ast.DictComp(generators=[one], key=ast.Name()):
                return not one.ifs and self.loop(one.iter, one.target) and self.copy(node.value)
            case _:
                return isinstance(node, ast.Call) and self.call(node)

    def call(self, node: ast.Call) -> bool:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in MOVES:
            self.moved = True
            converts = len(node.args) > 1 or any(k.arg == "dtype" for k in node.keywords)
            return not converts and self.copy(function.value)
        if isinstance(function, ast.Name) and function.id in self.helpers:
            self.moved = True
        elif last_name(function) != self.function.name:
            made = function.func if isinstance(function, ast.Call) else function  # type(batch)(...)
            if last_name(made) not in CONTAINERS:
                return False
        return bool(node.args) and self.copy(node.args[0])


def _is_empty(node: ast.expr) -> bool:
    """`{}`, `[]`, `dict()`, `type(batch)()`"""
    if isinstance(node, ast.Call):
        return not node.args and not node.keywords
    return (isinstance(node, ast.List) and not node.elts) or (isinstance(node, ast.Dict) and not node.values)


# -- classes around a loader ---------------------------------------------------------------------------------


def _wrapped(cls: ast.ClassDef, helpers: frozenset[str]) -> str | None:
    methods = {s.name: s for s in cls.body if isinstance(s, Function)}
    rest = [s for s in cls.body if not isinstance(s, Function) and not _is_text(s)]
    plain = not cls.keywords and all(isinstance(b, ast.Name) and b.id == "object" for b in cls.bases)
    if rest or set(methods) != {"__init__", "__iter__", "__len__"} or not plain:
        return None
    iterated = _iterated(methods["__iter__"], helpers)
    if iterated is None or iterated != _measured(methods["__len__"]):
        return None
    return _attributes(methods["__init__"]).get(iterated)


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
        for target, value in pairs_of(statement.targets[0], statement.value):
            name = _own(target)
            if name is None or not isinstance(value, ast.Name) or value.id not in parameters:
                return {}
            found[name] = value.id
    return found


def _own(node: ast.expr) -> str | None:
    """`name` of `self.name`."""
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return None


def _measured(function: Function) -> str | None:
    """`name` of `return len(self.name)`."""
    match _body(function):
        case [ast.Return(value=ast.Call(func=ast.Name(id="len"), args=[held]))]:
            return _own(held)
    return None


def _iterated(function: Function, helpers: frozenset[str]) -> str | None:
    """`name` of a loop over `self.name` that yields each batch, moved."""
    match _body(function):
        case [
            ast.For(orelse=[], body=[*before, ast.Expr(value=ast.Yield(value=ast.expr() as batch))]) as loop
        ]:
            reader = _Reader(function, "", helpers)
            reader.bind(loop.target)
            parts = batch.elts if isinstance(batch, ast.Tuple) else [batch]
            if reader.suite(before) and all(map(reader.copy, parts)) and reader.moved:
                return _own(loop.iter)
    return None
