"""Reaching definitions: which bindings of a local name a use of it can see.

A script at module level that reuses `loss` and `images` in its training and its evaluation loop is the common case;
without this the two loops would be one. Structured control flow only; where it cannot tell (a name that another
scope rebinds), a use has no entry and the caller takes every binding of the name.
"""

from __future__ import annotations

import ast

from .scopes import Scope, ScopeTable, all_arguments
from .walks import children

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
State = dict[str, frozenset[ast.AST]]


def reaching_definitions(table: ScopeTable) -> dict[ast.Name, frozenset[ast.AST]]:
    """For each use of a name in the scope that binds it: the definitions that may reach it."""
    found: dict[ast.Name, frozenset[ast.AST]] = {}
    foreign = _rebound_elsewhere(table)
    for node, scope in table.scopes.items():
        if isinstance(node, ast.Lambda):
            continue
        _Walker(table, scope, found, foreign).run(node)
    return found


def reaching_within(
    table: ScopeTable, function: ast.FunctionDef | ast.AsyncFunctionDef, taken: dict[ast.If, bool]
) -> tuple[dict[ast.Name, frozenset[ast.AST]], list[ast.Return]]:
    """The same for one function some of whose tests are known to say what `taken` says, and the return statements it may
    reach."""
    found: dict[ast.Name, frozenset[ast.AST]] = {}
    walker = _Walker(table, table.scopes[function], found, _rebound_elsewhere(table), taken)
    walker.run(function)
    return found, list(dict.fromkeys(walker.returns))


def _rebound_elsewhere(table: ScopeTable) -> set[tuple[Scope, str]]:
    """Names that an inner scope binds by `global` or `nonlocal`."""
    found: set[tuple[Scope, str]] = set()
    for scope in table.scopes.values():
        found.update((scope.module, name) for name in scope.globals)
        for name in scope.nonlocals:
            owner = scope.parent.resolve(name) if scope.parent is not None else None
            if owner is not None:
                found.add((owner, name))
    return found


def _join(*states: State | None) -> State | None:
    alive = [s for s in states if s is not None]
    if not alive:
        return None
    joined = dict(alive[0])
    for state in alive[1:]:
        for name, definitions in state.items():
            joined[name] = joined.get(name, frozenset()) | definitions
    return joined


class _Walker:
    """One scope's bodies in execution order. A state of None is code that cannot be reached."""

    def __init__(
        self,
        table: ScopeTable,
        scope: Scope,
        found: dict[ast.Name, frozenset[ast.AST]],
        foreign: set[tuple[Scope, str]],
        taken: dict[ast.If, bool] | None = None,
    ) -> None:
        self.table = table
        self.scope = scope
        self.found = found
        self.foreign = foreign
        self.state: State | None = {}
        self.breaks: list[list[State]] = []
        self.continues: list[list[State]] = []
        self.taken = taken or {}
        self.returns: list[ast.Return] = []

    def run(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for argument in all_arguments(node):
                self.define(argument.arg, argument)
        assert isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        self.body(node.body)

    def define(self, name: str, node: ast.AST) -> None:
        if self.state is not None:
            self.state[name] = frozenset({node})

    def use(self, node: ast.Name) -> None:
        if self.scope.resolve(node.id) is not self.scope or (self.scope, node.id) in self.foreign:
            return
        seen = (self.state or {}).get(node.id, frozenset())
        if seen:
            self.found[node] = self.found.get(node, frozenset()) | seen

    # -- statements ------------------------------------------------------------------------------------------

    def body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            self.expression(node.test)
            if node in self.taken:
                self.body(node.body if self.taken[node] else node.orelse)
            else:
                self._branches(node.body, node.orelse)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self.expression(node.iter)
            self._loop(node.body, node.orelse, node.target, None)
        elif isinstance(node, ast.While):
            endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
            self._loop(node.body, node.orelse, None, node.test, endless)
        elif isinstance(node, ast.Try):
            self._try(node)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self.expression(item.context_expr)
                if item.optional_vars is not None:
                    self.expression(item.optional_vars)
            self.body(node.body)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._definition(node)
        else:
            self._simple(node)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        for part in node.decorator_list:
            self.expression(part)
        if isinstance(node, ast.ClassDef):
            for part in node.bases:
                self.expression(part)
        else:
            for default in (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)):
                self.expression(default)
        self.define(node.name, node)

    def _simple(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                self.define(alias.asname or alias.name.split(".")[0], alias)
            return
        if isinstance(node, ast.AugAssign):
            self.expression(node.value)
            if isinstance(node.target, ast.Name):
                self.use(node.target)
            self.expression(node.target)
            return
        if isinstance(node, ast.Assign | ast.AnnAssign):
            if node.value is not None:
                self.expression(node.value)
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                self.expression(target)
            return
        for child in children(node):
            self.expression(child)
        if isinstance(node, ast.Return) and self.state is not None:
            self.returns.append(node)
        if isinstance(node, ast.Return | ast.Raise):
            self.state = None
        elif isinstance(node, ast.Break | ast.Continue) and self.breaks:
            stack = self.breaks if isinstance(node, ast.Break) else self.continues
            if self.state is not None:
                stack[-1].append(dict(self.state))
            self.state = None

    def _branches(self, body: list[ast.stmt], orelse: list[ast.stmt]) -> None:
        before = dict(self.state) if self.state is not None else None
        self.body(body)
        after_body = self.state
        self.state = before
        self.body(orelse)
        self.state = _join(after_body, self.state)

    def _loop(
        self,
        body: list[ast.stmt],
        orelse: list[ast.stmt],
        target: ast.expr | None,
        test: ast.expr | None,
        endless: bool = False,
    ) -> None:
        entry = dict(self.state) if self.state is not None else None
        head = entry
        left: list[State] = []
        for _ in range(2):  # twice: definitions at the end of the body reach its beginning
            self.breaks.append([])
            self.continues.append([])
            self.state = dict(head) if head is not None else None
            if test is not None:
                self.expression(test)
            if target is not None:
                self.expression(target)
            self.body(body)
            left = self.breaks.pop()
            head = _join(entry, self.state, *self.continues.pop())
        self.state = None if endless else (dict(head) if head is not None else None)
        self.body(orelse)
        self.state = _join(self.state, *left)

    def _try(self, node: ast.Try) -> None:
        before = dict(self.state) if self.state is not None else None
        self.body(node.body)
        after = self.state
        anywhere = _join(before, after)  # an exception may come after any statement of the body
        ends = []
        for handler in node.handlers:
            self.state = dict(anywhere) if anywhere is not None else None
            if handler.type is not None:
                self.expression(handler.type)
            if handler.name:
                self.define(handler.name, handler)
            self.body(handler.body)
            ends.append(self.state)
        self.state = after
        self.body(node.orelse)
        self.state = _join(self.state, *ends)
        self.body(node.finalbody)

    # -- expressions -----------------------------------------------------------------------------------------

    def expression(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self.use(node)
            else:
                self.define(node.id, node)
            return
        if isinstance(node, ast.Constant | ast.Lambda):
            return
        if isinstance(node, _COMPREHENSIONS):
            for generator in node.generators:
                self.expression(generator.iter)
                self.expression(generator.target)
                for test in generator.ifs:
                    self.expression(test)
            parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
            for part in parts:
                self.expression(part)
            return
        if isinstance(node, ast.NamedExpr):
            self.expression(node.value)
            self.expression(node.target)
            return
        for child in children(node):
            self.expression(child)
