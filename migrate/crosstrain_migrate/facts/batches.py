"""What a loader yields: one tensor, or a container of them, told by what the script does with the loop variable."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from crosstrain_migrate.syntax.nodes import FunctionNode, last_name
from crosstrain_migrate.syntax.scopes import ScopeTable
from crosstrain_migrate.syntax.walks import walk

from . import torch_api as api

MOVES = frozenset({"to", "cuda"})
MAX_DEPTH = 3  # how far a batch is followed through calls of the script's own functions

Uses = dict[ast.AST, list[ast.Name]]


def tensor_targets(table: ScopeTable, reaching: dict[ast.Name, frozenset[ast.AST]]) -> set[ast.AST]:
    """Loop variables that hold a batch which is one tensor: never unpacked, indexed by a constant or asked for keys."""
    return _Batches(table, reaching).tensors()


class _Batches:
    def __init__(self, table: ScopeTable, reaching: dict[ast.Name, frozenset[ast.AST]]) -> None:
        self.table = table
        self.uses: Uses = defaultdict(list)
        for name, definitions in reaching.items():
            for definition in definitions:
                self.uses[definition].append(name)
        self.functions: dict[str, list[FunctionNode]] = defaultdict(list)
        for function in table.each(ast.FunctionDef, ast.AsyncFunctionDef):
            self.functions[function.name].append(function)

    def tensors(self) -> set[ast.AST]:
        targets = [
            n
            for loop in self.table.each(ast.For, ast.AsyncFor)
            for n in walk(loop.target)
            if isinstance(n, ast.Name)
        ]
        return {t for t in targets if self.uses[t] and not any(self.as_container(n) for n in self.uses[t])}

    def as_container(self, name: ast.Name, depth: int = 0) -> bool:
        """Whether this use shows that the name holds a tuple or a dict."""
        parent = self.table.parents.get(name)
        if isinstance(parent, ast.Subscript) and parent.value is name:
            return isinstance(parent.slice, ast.Constant)
        if isinstance(parent, ast.Assign):
            return any(isinstance(t, ast.Tuple | ast.List) for t in parent.targets)
        if isinstance(parent, ast.Attribute):
            return parent.attr not in api.TENSOR_MEMBERS or self._moved_as_container(parent, depth)
        if isinstance(parent, ast.Call) and ast.unparse(parent.func) == "map" and name in parent.args[1:]:
            return True
        if isinstance(parent, ast.Call) and depth < MAX_DEPTH:
            return any(
                self.as_container(use, depth + 1)
                for parameter in self._parameters(parent, name)
                for use in self.uses[parameter]
            )
        return isinstance(parent, ast.Starred | ast.comprehension | ast.For) or (
            isinstance(parent, ast.keyword) and parent.arg is None
        )

    def _moved_as_container(self, method: ast.Attribute, depth: int) -> bool:
        """Whether what `batch = batch.to(device)` gives is used as a container: one of graphs, say."""
        call = self.table.parents.get(method)
        stored = self.table.parents.get(call) if isinstance(call, ast.Call) and call.func is method else None
        if method.attr not in MOVES or not isinstance(stored, ast.Assign) or depth >= MAX_DEPTH:
            return False
        return any(
            self.as_container(use, depth + 1) for target in stored.targets for use in self.uses[target]
        )

    def _parameters(self, call: ast.Call, argument: ast.expr) -> Iterator[ast.arg]:
        """The parameters that get `argument`, of every function of the script that has the called name."""
        if argument not in call.args:
            return
        index = call.args.index(argument)
        for function in self.functions.get(last_name(call.func), ()):
            names = [*function.args.posonlyargs, *function.args.args]
            method = isinstance(self.table.parents.get(function), ast.ClassDef)
            at = index + (1 if method and isinstance(call.func, ast.Attribute) else 0)
            if at < len(names):
                yield names[at]
