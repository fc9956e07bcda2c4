"""A script's code with the values of its expressions: its nodes by kind, its variables, its calls and what they call."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeVar, overload

from crosstrain_migrate.syntax.nodes import FunctionNode, place_of
from crosstrain_migrate.syntax.scopes import Scope, ScopeTable

from .arguments import argument_of, positional_of, returned_by
from .contents import Contents
from .index import Index
from .interpretation import Interpretation
from .values import Symbol, Value, Values, code_of

A = TypeVar("A", bound=ast.AST)
B = TypeVar("B", bound=ast.AST)
C = TypeVar("C", bound=ast.AST)


class Code(ABC):
    """Answers to questions about a script's code, whatever it trains."""

    def __init__(self, tree: ast.Module, table: ScopeTable, index: Index | None = None) -> None:
        self.tree = tree
        self.table = table
        self.index = index or Index(tree)

    @property
    @abstractmethod
    def interp(self) -> Interpretation:
        """What every expression may be."""

    @property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the script, breadth first; contexts and operators are not among them."""
        return self.index.nodes

    @overload
    def each(self, kind: type[A], /) -> list[A]: ...
    @overload
    def each(self, kind: type[A], other: type[B], /) -> list[A | B]: ...
    @overload
    def each(self, kind: type[A], other: type[B], third: type[C], /) -> list[A | B | C]: ...
    @overload
    def each(self, *kinds: type[ast.AST]) -> list[ast.AST]: ...
    def each(self, *kinds: type[ast.AST]) -> Iterable[ast.AST]:
        """The nodes of some kinds, in the order of `nodes`."""
        return self.index.each(kinds)

    @cached_property
    def stores(self) -> list[tuple[ast.Name | ast.Attribute, Values]]:
        """What is bound to each variable and attribute, where it is bound."""
        return [
            (node, frozenset(values))
            for node, values in self.interp.values.items()
            if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store)
        ]

    @cached_property
    def stores_in(self) -> dict[Scope | None, list[tuple[ast.Name | ast.Attribute, Values]]]:
        """`stores` by the scope that they stand in."""
        found: dict[Scope | None, list[tuple[ast.Name | ast.Attribute, Values]]] = defaultdict(list)
        for node, values in self.stores:
            found[self.table.of_node.get(node)].append((node, values))
        return found

    @cached_property
    def imports_in(self) -> dict[Scope | None, list[ast.alias]]:
        """The names that imports bind, by scope."""
        found: dict[Scope | None, list[ast.alias]] = defaultdict(list)
        for node, values in self.interp.definitions.items():
            if isinstance(node, ast.alias) and values:
                found[self.table.of_node.get(node)].append(node)
        return found

    @cached_property
    def taken_from_files(self) -> dict[str, list[ast.ImportFrom | ast.Attribute]]:
        """The imports and attributes that may take something from another file of the program, by its name."""
        found: dict[str, list[ast.ImportFrom | ast.Attribute]] = defaultdict(list)
        for node in self.nodes if self.interp.links.regions else ():
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.name].append(node)
            elif isinstance(node, ast.Attribute):
                found[node.attr].append(node)
        return found

    @property
    def names(self) -> dict[str, list[ast.Name]]:
        """Every place that mentions a variable, by its name, in the order of `nodes`."""
        return self.index.names

    def bindings(self, node: ast.AST | None) -> frozenset[ast.AST]:
        """The bindings whose value a variable may have at a use of it; none for any other node."""
        return self.interp.bindings(node)

    def mentions(self, scope: Scope, name: str) -> list[ast.Name]:
        """Every place that reads or binds the variable `name` of `scope`, in functions inside it too."""
        of_node = self.table.of_node
        return [node for node in self.names.get(name, ()) if of_node[node].resolve(name) is scope]

    def of(self, node: ast.AST) -> Values:
        return self.interp.of(node)

    def in_module(self, node: ast.AST) -> bool:
        """Whether `node` stands in a method of an nn.Module, where nothing may communicate."""
        return node in self.interp.in_modules

    @property
    def calls(self) -> list[ast.Call]:
        return self.index.calls

    def paths(self, node: ast.AST) -> set[str]:
        """The imported names `node` may stand for."""
        return {v.path for v in self.of(node) if isinstance(v, Symbol)}

    def calls_to(self, *paths: str) -> list[ast.Call]:
        if len(paths) == 1:
            return self._calls_by_path.get(paths[0], [])
        wanted = {call for path in paths for call in self._calls_by_path.get(path, ())}
        return [call for call in self.calls if call in wanted] if wanted else []

    @cached_property
    def _calls_by_path(self) -> dict[str, list[ast.Call]]:
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.calls:
            for path in self.paths(call.func):
                found[path].append(call)
        return found

    def method_calls(self, name: str) -> list[ast.Call]:
        return self.index.method_calls.get(name, [])

    def targets(self, call: ast.Call) -> list[FunctionNode]:
        """The script's own functions that `call` may run."""
        code = (code_of(value) for value in self.of(call.func))
        found = (self.interp.method(c, "__init__") if isinstance(c, ast.ClassDef) else c for c in code)
        return [function for function in found if function is not None]

    @cached_property
    def contents(self) -> Contents:
        """What the script puts into its containers and attributes."""
        return Contents(self.interp, self.each(ast.Assign, ast.AugAssign), self.each(ast.Call))

    @cached_property
    def all_values(self) -> set[Value]:
        return {v for values in self.interp.values.values() for v in values}

    @cached_property
    def callers(self) -> dict[ast.AST, list[ast.Call]]:
        """The calls of each function of the script, in the order of the text."""
        sites = self.interp.call_sites.items()
        return defaultdict(list, {function: sorted(calls, key=place_of) for function, calls in sites})

    def given(self, argument: ast.arg) -> list[ast.expr]:
        """What the calls of its function give for a parameter."""
        function = self.table.of_node[argument].node
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            return []
        given = (self.passed(site, function, argument.arg) for site in self.callers.get(function, ()))
        return [value for value in given if value is not None]

    def passed(self, site: ast.Call, function: FunctionNode, name: str) -> ast.expr | None:
        """The expression that a call gives for parameter `name`; None for the default, or where the call does not tell."""
        method = isinstance(self.table.parents.get(function), ast.ClassDef)
        bound = method and any(first.arg in {"self", "cls"} for first in positional_of(function)[:1])
        return argument_of(site, function, name, bound)

    def returned(self, function: FunctionNode) -> list[ast.expr]:
        """What the return statements of a function return, without those of the functions inside it."""
        return returned_by(self.table, function)

    def places_of(self, node: ast.expr) -> set[ast.AST]:
        """The places that bind a variable; any other expression itself."""
        if isinstance(node, ast.Name):
            return {binding for binding in self.bindings(node) if isinstance(binding, ast.Name)}
        return {node}

    def enclosing(self, node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
        """What stands around `node` in its function, then around the calls of that function, and so on; each with the
        node or call that it stands around."""
        work, seen = [node], set[ast.AST]()
        while work:
            current = work.pop(0)
            for around in self.table.ancestors(current):
                yield around, current
                if around in self.table.scopes:
                    work.extend(self.callers.get(around, ()) if around not in seen else ())
                    seen.add(around)
                    break

    def enclosing_function(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        return self.table.function_around(node)
