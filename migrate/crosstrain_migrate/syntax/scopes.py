"""Name resolution over a module's functions and classes, as Python does it.

Comprehensions and lambdas get no scope of their own for assignments except lambdas' parameters: a comprehension's
target is treated as a name of the function around it, which is coarser and never misses a flow.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from .nodes import FunctionNode
from .program import modules_of
from .walks import children

ScopeNode = ast.Module | ast.ClassDef | FunctionNode


@dataclass(eq=False)
class Scope:
    node: ScopeNode
    parent: Scope | None
    names: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)

    @property
    def is_function(self) -> bool:
        return isinstance(self.node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)

    @property
    def module(self) -> Scope:
        scope = self
        while scope.parent is not None:
            scope = scope.parent
        return scope

    @property
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
        for module in modules_of(tree):
            self.of_node[module] = self.scopes[module] = Scope(module, None)
            if module is not tree:
                self.parents[module] = tree
            self._visit_children(module, self.scopes[module])

    @property
    def root(self) -> Scope:
        """The script's own top level."""
        return next(scope for scope in reversed(self.scopes.values()) if scope.parent is None)

    def _visit_children(self, node: ast.AST, scope: Scope) -> None:
        for child in children(node):
            self.parents[child] = node
            self._visit(child, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        self.of_node[node] = scope
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            self._visit_function(node, scope)
            return
        if isinstance(node, ast.ClassDef):
            scope.names.add(node.name)
            inner = Scope(node, scope)
            self.scopes[node] = inner
            for part in (*node.decorator_list, *node.bases, *node.keywords):
                self.parents[part] = node
                self._visit(part, scope)
            for statement in node.body:
                self.parents[statement] = node
                self._visit(statement, inner)
            return
        self._bind(node, scope)
        self._visit_children(node, scope)

    def _visit_function(self, node: FunctionNode, scope: Scope) -> None:
        inner = Scope(node, scope)
        self.scopes[node] = inner
        if not isinstance(node, ast.Lambda):
            scope.names.add(node.name)
            for decorator in node.decorator_list:
                self.parents[decorator] = node
                self._visit(decorator, scope)
            if node.returns is not None:
                self.parents[node.returns] = node
                self._visit(node.returns, scope)
        self.parents[node.args] = node
        self.of_node[node.args] = inner
        for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
            self.parents[default] = node.args
            self._visit(default, scope)
        for argument in all_arguments(node):
            self.parents[argument] = node.args
            self.of_node[argument] = inner
            inner.names.add(argument.arg)
            if argument.annotation is not None:
                self.parents[argument.annotation] = argument
                self._visit(argument.annotation, scope)
        body = [node.body] if isinstance(node, ast.Lambda) else node.body
        for statement in body:
            self.parents[statement] = node
            self._visit(statement, inner)

    @staticmethod
    def _bind(node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            scope.names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                scope.names.add(alias.asname or alias.name.split(".")[0])
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
        """Whether `node` is `around`, or stands in it."""
        return node is around or any(a is around for a in self.ancestors(node))

    def function_around(self, node: ast.AST) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
        """The innermost function with a name that `node` stands in."""
        for around in self.ancestors(node):
            if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                return around
        return None

    def is_whole_else(self, node: ast.AST) -> bool:
        """Whether a statement is an `if` that is all another one's `else` holds, as an `elif` is."""
        parent = self.parents.get(node)
        return isinstance(node, ast.If) and isinstance(parent, ast.If) and parent.orelse == [node]

    def statement_of(self, node: ast.AST) -> ast.stmt:
        """The innermost statement that `node` is part of (itself, if it is one)."""
        if isinstance(node, ast.stmt):
            return node
        return next(a for a in self.ancestors(node) if isinstance(a, ast.stmt))


def all_arguments(node: FunctionNode) -> list[ast.arg]:
    args = node.args
    found = [*args.posonlyargs, *args.args, *args.kwonlyargs]
    return found + [a for a in (args.vararg, args.kwarg) if a is not None]


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
