"""Functions that move what they are given to a device, however nested it is, and change nothing else.

Research code is full of a `to_device` that goes through dicts, lists and tuples. Its result is its argument, elsewhere.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.scopes import ScopeTable
from crosstrain_migrate.syntax.walks import walk

Function = ast.FunctionDef | ast.AsyncFunctionDef
MOVES = frozenset({"to", "cuda"})
CONTAINERS = frozenset({"tuple", "list", "dict", "type"})


def moving_functions(table: ScopeTable) -> dict[ast.AST, str]:
    """Each such function with the name of the parameter that it moves."""
    found: dict[ast.AST, str] = {}
    for node in table.scopes:
        if isinstance(node, Function) and not node.decorator_list:
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)]
            method = isinstance(table.parents.get(node), ast.ClassDef)
            moved = names[1:2] if method else names[:1]
            if moved and Reader(node, moved[0]).moves():
                found[node] = moved[0]
    return found


class Reader:
    """Reads one function. `copies` are the names that hold the argument, a part of it, or a copy that is being made;
    `helpers` the names of functions that are known to move what they are given first."""

    def __init__(self, function: Function, parameter: str, helpers: frozenset[str] = frozenset()) -> None:
        self.function = function
        self.helpers = helpers
        self.copies = {parameter}
        self.moved = False
        self.returned = False

    def moves(self) -> bool:
        body = self.function.body
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
            body = body[1:]
        return self.suite(body) and self.moved and self.returned

    def suite(self, statements: list[ast.stmt]) -> bool:
        return all(self.statement(s) for s in statements)

    def statement(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.If):
            return self.suite(node.body) and self.suite(node.orelse)
        if isinstance(node, ast.Return):
            self.returned = True
            return node.value is not None and self.copy(node.value)
        if isinstance(node, ast.For):
            return self.loop(node)
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            return self.assigned(node.targets[0], node.value)
        if isinstance(node, ast.Expr):  # found.append(to_device(part, device))
            call = node.value
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                return False
            return call.func.attr == "append" and self.copy(call.func.value) and self.copy(call.args[0])
        return isinstance(node, ast.Raise | ast.Pass)

    def assigned(self, target: ast.expr, value: ast.expr) -> bool:
        if isinstance(target, ast.Subscript):
            return self.copy(target.value) and self.copy(value)
        if not isinstance(target, ast.Name) or not (_is_empty(value) or self.copy(value)):
            return False
        self.copies.add(target.id)
        return True

    def loop(self, node: ast.For) -> bool:
        if not self.goes_over(node.iter) or node.orelse:
            return False
        self.bind(node.target)
        return self.suite(node.body)

    def goes_over(self, node: ast.expr) -> bool:
        """`batch`, `batch.items()`, `enumerate(batch)`"""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            return node.func.attr in {"items", "values", "keys"} and self.copy(node.func.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return node.func.id == "enumerate" and self.copy(node.args[0])
        return self.copy(node)

    def bind(self, target: ast.expr) -> None:
        self.copies.update(n.id for n in walk(target) if isinstance(n, ast.Name))

    def copy(self, node: ast.expr) -> bool:
        """Whether an expression is the argument or a part of it, moved or not."""
        if isinstance(node, ast.Name):
            return node.id in self.copies
        if isinstance(node, ast.Starred):
            return self.copy(node.value)
        if isinstance(node, ast.Subscript):
            return self.copy(node.value)
        if isinstance(node, ast.IfExp):
            return self.copy(node.body) and self.copy(node.orelse)
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.DictComp):
            return self.comprehension(node)
        return isinstance(node, ast.Call) and self.call(node)

    def comprehension(self, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> bool:
        generator = node.generators[0]
        if len(node.generators) > 1 or generator.ifs or not self.goes_over(generator.iter):
            return False
        self.bind(generator.target)
        if isinstance(node, ast.DictComp):
            return isinstance(node.key, ast.Name) and self.copy(node.value)
        return self.copy(node.elt)

    def call(self, node: ast.Call) -> bool:
        function = node.func
        if isinstance(function, ast.Attribute) and function.attr in MOVES:
            self.moved = True
            converts = len(node.args) > 1 or any(k.arg == "dtype" for k in node.keywords)
            return not converts and self.copy(function.value)
        if isinstance(function, ast.Name) and function.id in self.helpers:
            self.moved = True
            return bool(node.args) and self.copy(node.args[0])
        if isinstance(function, ast.Name | ast.Attribute) and last_name(function) == self.function.name:
            return bool(node.args) and self.copy(node.args[0])
        if isinstance(function, ast.Call):  # type(batch)(...)
            function = function.func
        return (
            last_name(function) in CONTAINERS | {"__class__"} and bool(node.args) and self.copy(node.args[0])
        )


def _is_empty(node: ast.expr) -> bool:
    """`{}`, `[]`, `dict()`, `type(batch)()`"""
    empty = isinstance(node, ast.Dict | ast.List) and not list(ast.iter_child_nodes(node))[:1]
    if isinstance(node, ast.List):
        return not node.elts
    return empty or (isinstance(node, ast.Call) and not node.args and not node.keywords)
