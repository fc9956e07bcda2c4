"""What a loader yields, one tensor or a container of them: the uses of the loop variable tell."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from crosstrain_migrate.syntax.nodes import FunctionNode, last_name
from crosstrain_migrate.syntax.scopes import ScopeTable
from crosstrain_migrate.syntax.walks import walk

from . import torch_api as api
from .arguments import positional_of
from .movers import MOVES

MAX_DEPTH = 3  # how far a batch is followed through calls of the script's own functions

Uses = Mapping[ast.AST, list[ast.Name]]


def tensor_targets(table: ScopeTable, uses: Uses) -> set[ast.AST]:
    """Loop variables that hold a batch which is one tensor: never unpacked, indexed by a constant or asked for keys."""
    batches = _Batches(table, uses)
    targets = (n for loop in table.each(ast.For, ast.AsyncFor) for n in walk(loop.target))
    return {
        target
        for target in targets
        if isinstance(target, ast.Name)
        if uses.get(target) and not batches.used_as_container(target)
    }


class _Batches:
    def __init__(self, table: ScopeTable, uses: Uses) -> None:
        self.table = table
        self.uses = uses
        self.functions: dict[str, list[FunctionNode]] = defaultdict(list)
        for function in table.each(ast.FunctionDef, ast.AsyncFunctionDef):
            self.functions[function.name].append(function)

    def used_as_container(self, binding: ast.AST, depth: int = 0) -> bool:
        """Whether any use of a variable shows that it holds a tuple or a dict."""
        return any(self._as_container(use, depth) for use in self.uses.get(binding, ()))

    def _as_container(self, name: ast.Name, depth: int) -> bool:
        match parent := self.table.parents.get(name):
            case ast.Subscript() if parent.value is name:
                return isinstance(parent.slice, ast.Constant)
            case ast.Assign():
                return any(isinstance(t, ast.Tuple | ast.List) for t in parent.targets)
            case ast.Attribute():
                return parent.attr not in api.TENSOR_MEMBERS or self._moved_as_container(parent, depth)
            case ast.Call():
                if ast.unparse(parent.func) == "map" and name in parent.args[1:]:
                    return True
                return depth < MAX_DEPTH and any(
                    self.used_as_container(parameter, depth + 1)
                    for parameter in self._parameters(parent, name)
                )
            case ast.keyword():
                return parent.arg is None
            case _:
                return isinstance(parent, ast.Starred | ast.comprehension | ast.For)

    def _moved_as_container(self, method: ast.Attribute, depth: int) -> bool:
        """Whether what `batch = batch.to(device)` gives is used as a container: one of graphs, say."""
        call = self.table.parents.get(method)
        stored = self.table.parents.get(call) if isinstance(call, ast.Call) and call.func is method else None
        if method.attr not in MOVES or not isinstance(stored, ast.Assign) or depth >= MAX_DEPTH:
            return False
        return any(self.used_as_container(target, depth + 1) for target in stored.targets)

    def _parameters(self, call: ast.Call, argument: ast.expr) -> Iterator[ast.arg]:
        """The parameters that get `argument`, of every function of the script that has the called name."""
        if argument not in call.args:
            return
        index = call.args.index(argument)
        for function in self.functions.get(last_name(call.func), ()):
            method = isinstance(self.table.parents.get(function), ast.ClassDef)
            bound = method and isinstance(call.func, ast.Attribute)
            yield from positional_of(function)[bound:][index : index + 1]
