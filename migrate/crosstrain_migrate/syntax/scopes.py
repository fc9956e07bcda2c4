"""Name resolution over a module's functions and classes, as Python does it.

Comprehensions and lambdas get no scope of their own for assignments except lambdas' parameters: a comprehension's
target is treated as a name of the function around it, which is coarser and never misses a flow.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, overload

from .bindings import bound_name
from .nodes import Function, FunctionNode, all_arguments, defaults
from .program import modules_of
from .walks import children

ScopeNode = ast.Module | ast.ClassDef | FunctionNode
A = TypeVar("A", bound=ast.AST)
B = TypeVar("B", bound=ast.AST)
C = TypeVar("C", bound=ast.AST)

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_NAMED_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BINDERS = (ast.Import, ast.ImportFrom, ast.ExceptHandler, ast.Global, ast.Nonlocal)


@dataclass(eq=False)
class Scope:
    node: ScopeNode
    parent: Scope | None
    names: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, _FUNCTIONS)

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    @cached_property
    def file(self) -> ast.Module:
        """The script, or the file of the program, that this belongs to."""
        node = self.module.node
        assert isinstance(node, ast.Module)
        return node

    def resolve(self, name: str) -> Scope | None:
        """The scope that binds `name` when it is used here; None for a builtin or an unknown name."""
        if name in self.globals:
            return self.module
        if name in self.names and name not in self.nonlocals:
            return self
        scope = self.parent
        while scope is not None:
            if name in scope.names and (scope.is_function or scope.parent is None):
                return scope
            scope = scope.parent
        return None


class ScopeTable:
    """Every scope of a script or a program, and the scope each node belongs to."""

    def __init__(self, tree: ast.Module) -> None:
        self.of_node: dict[ast.AST, Scope] = {tree: Scope(tree, None)}
        self.scopes: dict[ScopeNode, Scope] = {}
        self.parents: dict[ast.AST, ast.AST] = {}
        self._functions: dict[ast.AST, Function | None] = {}
        for module in modules_of(tree):
            self.of_node[module] = self.scopes[module] = Scope(module, None)
            if module is not tree:
                self.parents[module] = tree
            self._visit_each(children(module), self.scopes[module], module)

    @overload
    def each(self, kind: type[A], /) -> list[A]: ...
    @overload
    def each(self, kind: type[A], other: type[B], /) -> list[A | B]: ...
    @overload
    def each(self, kind: type[A], other: type[B], third: type[C], /) -> list[A | B | C]: ...
    def each(self, *kinds: type[ast.AST]) -> Iterable[ast.AST]:
        """The nodes of exactly these kinds, each kind in the order of the text."""
        return [node for kind in kinds for node in self._by_class.get(kind, ())]

    @cached_property
    def _by_class(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in self.parents:
            found[node.__class__].append(node)
        return found

    @cached_property
    def set_attributes(self) -> set[str]:
        """The names of the attributes that something is bound to."""
        return {one.attr for one in self.each(ast.Attribute) if isinstance(one.ctx, ast.Store)}

    def _visit_each(self, nodes: Iterable[ast.AST], scope: Scope, parent: ast.AST) -> None:
        for node in nodes:
            self.parents[node] = parent
            self.of_node[node] = scope
            self._visit(node, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name):
            if not isinstance(node.ctx, ast.Load):
                scope.names.add(node.id)
        elif isinstance(node, _FUNCTIONS):
            self._visit_function(node, scope)
        elif isinstance(node, ast.ClassDef):
            scope.names.add(node.name)
            self.scopes[node] = inner = Scope(node, scope)
            self._visit_each((*node.decorator_list, *node.bases, *node.keywords), scope, node)
            self._visit_each(node.body, inner, node)
        else:
            if isinstance(node, _BINDERS):
                self._bind(node, scope)
            self._visit_each(children(node), scope, node)

    def _visit_function(self, node: FunctionNode, scope: Scope) -> None:
        self.scopes[node] = inner = Scope(node, scope)
        if not isinstance(node, ast.Lambda):
            scope.names.add(node.name)
            self._visit_each(node.decorator_list, scope, node)
            self._visit_each([node.returns] if node.returns is not None else [], scope, node)
        self.parents[node.args] = node
        self.of_node[node.args] = inner
        self._visit_each(defaults(node.args), scope, node.args)
        for argument in all_arguments(node):
            self.parents[argument] = node.args
            self.of_node[argument] = inner
            inner.names.add(argument.arg)
            if argument.annotation is not None:
                self._visit_each([argument.annotation], scope, argument)
        self._visit_each([node.body] if isinstance(node, ast.Lambda) else node.body, inner, node)

    @staticmethod
    def _bind(node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            scope.names.update(map(bound_name, node.names))
        elif isinstance(node, ast.ExceptHandler) and node.name:
            scope.names.add(node.name)
        elif isinstance(node, ast.Global):
            scope.globals.update(node.names)
        elif isinstance(node, ast.Nonlocal):
            scope.nonlocals.update(node.names)

    def ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around `node`, innermost first."""
        parent = self.parents.get(node)
        while parent is not None:
            yield parent
            parent = self.parents.get(parent)

    def is_inside(self, node: ast.AST, around: ast.AST) -> bool:
        """Whether `node` is `around` or stands inside it."""
        inside: ast.AST | None = node
        while inside is not None and inside is not around:
            inside = self.parents.get(inside)
        return inside is around

    def function_around(self, node: ast.AST) -> Function | None:
        """The innermost function with a name that `node` stands in."""
        if node not in self._functions:  # asked ten thousand times a script, mostly for neighbours
            above = self.parents.get(node)
            if above is None or isinstance(above, _NAMED_FUNCTIONS):
                self._functions[node] = above
            else:
                self._functions[node] = self.function_around(above)
        return self._functions[node]

    def is_whole_else(self, node: ast.AST) -> bool:
        """Whether a statement is an `if` that is the whole `else` of another one, as an `elif` is."""
        parent = self.parents.get(node)
        return isinstance(node, ast.If) and isinstance(parent, ast.If) and parent.orelse == [node]

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that `node` is part of (itself, if it is one)."""
        if isinstance(node, ast.stmt):
            return node
        return next(a for a in self.ancestors(node) if isinstance(a, ast.stmt))


def suites(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statement lists directly under a compound statement, function, class or module."""
    for field_name in ("body", "orelse", "finalbody"):
        block = getattr(node, field_name, None)
        if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
            yield block
    for handler in getattr(node, "handlers", ()):
        yield handler.body
    for case in getattr(node, "cases", ()):
        yield case.body
