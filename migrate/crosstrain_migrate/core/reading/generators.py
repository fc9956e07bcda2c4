"""The DataLoaders that generator functions of the project read: `loader` of `for batch in endless(loader)`.

Prepared itself, a generator is dealt by whole batches, which every process must load; its loader is better prepared.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from crosstrain_migrate.syntax.nodes import Function, last_name, written

from .certain import Certain
from .forms import is_function_frame, is_method
from .iterators import Iterators, Sources
from .script import Script

_DEPTH = 6  # how many names and calls are followed


class Generators:
    """Finds what is prepared instead of a generator. sources: what a loop over an expression reads."""

    def __init__(self, script: Script, iterators: Iterators, certain: Certain, sources: Sources) -> None:
        self.script = script
        self._iterators = iterators
        self._certain = certain
        self._sources = sources

    def behind(self, node: ast.expr, classes: Collection[ast.ClassDef | None]) -> list[ast.expr]:
        """The loaders that a generator reads, called or held by `node`; `node` itself where nobody can say.

        classes: those of the methods that train, whose own a base class calls by its name: `for _ in self.steps():`.
        """
        call = self._made_by(node)
        functions = self._called(call, classes) if call is not None else []
        if call is None or len(functions) != 1:
            return [node]
        read = self._read_by(functions[0])
        found = [inner for one in read for inner in self._given(call, functions[0], one)]
        return found if found and all(self._is_loader(one) for one in found) else [node]

    def _called(self, call: ast.Call, classes: Collection[ast.ClassDef | None]) -> list[Function]:
        functions = self.script.functions_of(call)
        of = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if len(functions) < 2 or written(of) != "self":
            return functions
        methods = [[m for m in self.script.all_methods(cls) if m in functions] for cls in classes]
        own = [m for m in functions if m in [found[0] for found in methods if found]]
        return own or functions

    def _made_by(self, node: ast.expr) -> ast.Call | None:
        """The one call that makes what an expression stands for."""
        for _ in range(3):
            if isinstance(node, ast.Name | ast.Attribute):
                bound = [value for _, value in self._certain.bound(self.script.frame(node), node)]
                node = bound[0] if len(bound) == 1 else node
        return node if isinstance(node, ast.Call) else None

    def _is_loader(self, node: ast.expr) -> bool:
        return self._certain.gives_batches(self.script.frame(node), node)

    def _read_by(self, function: Function) -> list[ast.expr]:
        """What a function goes over to yield its items; nothing where it needs them on the CPU."""
        nodes = self.script.within(function)
        yields = [n for n in nodes if isinstance(n, ast.Yield | ast.YieldFrom)]
        if not yields or any(is_method(n, "numpy", "tolist") for n in nodes):
            return []
        passed_on = [n.value for n in yields if isinstance(n, ast.YieldFrom)]
        loops = [loop for n in yields for loop in self.script.loops_around(n) if isinstance(loop, ast.For)]
        found = [
            one
            for node in (*passed_on, *(loop.iter for loop in loops))
            for one in self._sources(function, node)
        ]
        return list(dict.fromkeys(found)) or self._iterators.behind(function, self.script.calls_in(function))

    def _given(self, call: ast.Call, function: Function, read: ast.expr) -> list[ast.expr]:
        """The loader that a call gives, or the one of a function that nothing else calls, unless it divides rows by rank."""
        if isinstance(read, ast.Name) and read.id in self.script.parameters(function):
            given = self.script.argument_for(call, function, read.id)
            return self._sources(self.script.frame(given), given) if given is not None else []
        is_divided = any("rank" in last_name(n).lower() for n in self.script.within(function))
        is_own = self.script.callers(function) == [call] and is_function_frame(self.script.frame(read))
        return [read] if is_own and not is_divided else []
