"""Walks a scope in execution order: which bindings of a local name may have been made where it is used.

Structured control flow only.
"""

from __future__ import annotations

import ast
import sys

from .bindings import bindings, bound_name
from .nodes import COMPREHENSIONS, Function, defaults
from .walks import children

State = dict[str, frozenset[ast.AST]]
Loop = ast.For | ast.AsyncFor | ast.While
if sys.version_info >= (3, 11):
    _Try = ast.Try | ast.TryStar
else:
    _Try = ast.Try


def join(*states: State | None) -> State | None:
    alive = [s for s in states if s is not None]
    if not alive:
        return None
    joined = dict(alive[0])
    for state in alive[1:]:
        for name, definitions in state.items():
            joined[name] = joined.get(name, frozenset()) | definitions
    return joined


class Flow:
    """One scope's statements in execution order. A state of None is code that cannot be reached.

    taken: the known outcomes of some tests.
    """

    passes = 2  # over a loop: definitions at the end of its body reach its beginning

    def __init__(self, taken: dict[ast.If, bool] | None = None) -> None:
        self.state: State | None = {}
        self.breaks: list[list[State]] = []
        self.continues: list[list[State]] = []
        self.taken = taken or {}
        self.returns: list[ast.Return] = []

    def use(self, node: ast.Name) -> None:
        raise NotImplementedError

    def define(self, name: str, node: ast.AST) -> None:
        if self.state is not None:
            self.state[name] = frozenset({node})

    def copied(self) -> State | None:
        return dict(self.state) if self.state is not None else None

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
                self._branches(node)
        elif isinstance(node, ast.For | ast.AsyncFor):
            self.expression(node.iter)
            self.loop(node)
        elif isinstance(node, ast.While):
            self.loop(node)
        elif isinstance(node, _Try):
            self._try(node)
        elif isinstance(node, ast.With | ast.AsyncWith):
            for item in node.items:
                self.expression(item.context_expr)
                if item.optional_vars is not None:
                    self.expression(item.optional_vars)
            self.with_body(node.body)
        elif isinstance(node, ast.Match):
            self._match(node)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self.definition(node)
        else:
            self._simple(node)

    def definition(self, node: Function | ast.ClassDef) -> None:
        more = node.bases if isinstance(node, ast.ClassDef) else defaults(node.args)
        for part in (*node.decorator_list, *more):
            self.expression(part)
        self.define(node.name, node)

    def _simple(self, node: ast.stmt) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                self.define(bound_name(alias), alias)
            return
        if isinstance(node, ast.AugAssign):
            self.expression(node.value)
            if isinstance(node.target, ast.Name):
                self.use(node.target)
            self.expression(node.target)
            return
        if isinstance(node, ast.Assign | ast.AnnAssign):
            if node.value is None:
                return  # `x: int` binds nothing
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

    def _branches(self, node: ast.If) -> None:
        before = self.copied()
        self.body(node.body)
        after_body = self.state
        self.state = before
        self.body(node.orelse)
        self.state = join(after_body, self.state)

    def loop(self, node: Loop) -> None:
        entry = head = self.copied()
        left: list[State] = []
        for _ in range(self.passes):
            self.breaks.append([])
            self.continues.append([])
            self.state = dict(head) if head is not None else None
            self.expression(node.test if isinstance(node, ast.While) else node.target)
            self.body(node.body)
            left = self.breaks.pop()
            head = join(entry, self.state, *self.continues.pop())
        endless = (
            isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)
        )
        self.state = None if endless else (dict(head) if head is not None else None)
        self.body(node.orelse)
        self.state = join(self.state, *left)

    def with_body(self, body: list[ast.stmt]) -> None:
        self.body(body)

    def _try(self, node: _Try) -> None:
        before = self.copied()
        anywhere = self.try_body(before, node.body)
        after = self.state
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
        self.state = join(self.state, *ends)
        if node.finalbody:
            self.finally_body(node.finalbody, anywhere)

    def try_body(self, before: State | None, body: list[ast.stmt]) -> State | None:
        """Runs `body` and returns the state in which an exception may leave it; `before` is the state above it."""
        self.body(body)
        return join(before, self.state)

    def finally_body(self, body: list[ast.stmt], anywhere: State | None) -> None:
        self.body(body)

    def _match(self, node: ast.Match) -> None:
        self.expression(node.subject)
        before = self.copied()
        ends = [before]
        for case in node.cases:
            self.state = dict(before) if before is not None else None
            self.expression(case.pattern)
            for name in bindings([case.pattern]):
                self.define(name, case.pattern)
            if case.guard is not None:
                self.expression(case.guard)
            self.body(case.body)
            ends.append(self.state)
        self.state = join(*ends)

    # -- expressions -----------------------------------------------------------------------------------------

    def expression(self, node: ast.AST) -> None:
        if isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Load):
                self.use(node)
            else:
                self.define(node.id, node)
        elif isinstance(node, COMPREHENSIONS):
            for generator in node.generators:
                self.expression(generator.iter)
                self.expression(generator.target)
                for test in generator.ifs:
                    self.expression(test)
            for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
                self.expression(part)
        elif isinstance(node, ast.NamedExpr):
            self.expression(node.value)
            self.expression(node.target)
        elif not isinstance(node, ast.Constant | ast.Lambda):
            for child in children(node):
                self.expression(child)
