"""Which names a text reads at a place that no execution can reach with the name bound.

Every doubt is decided for the text: a star import leaves the module's names open, a loop's body may have run before, an
exception may have come from anywhere.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Container, Iterator, Sequence

from .bindings import assignments_inside, bindings, bound_name, functions, own_names
from .names import KNOWN, has_star_import
from .nodes import COMPREHENSIONS, Function, all_arguments, defaults
from .walks import children, statements

if sys.version_info >= (3, 11):
    _Try = ast.Try | ast.TryStar
else:
    _Try = ast.Try
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Early = dict[tuple[str, str], int]  # (scope, name) -> line of the read


def early_uses(tree: ast.Module, but: Container[str] = ()) -> Early:
    """The reads that come before every binding of the name in their scope.

    A call, in the module's own statements, of a function that needs a global counts as a read of that global. Functions
    whose scope is among `but` are not looked into.
    """
    found: Early = {}
    if not has_star_import(tree):
        own = bindings(tree.body) - _declared(tree, ast.Global) - KNOWN
        found |= _Scope("module", own, _global_needs(tree, own)).early_in(tree.body)
    for scope, function in functions(tree):
        if scope not in but:
            # Names bound by an enclosing function, by `global` or by `nonlocal` are not this scope's.
            own = bindings(function.body) - _declared(function, ast.Global, ast.Nonlocal)
            own -= {argument.arg for argument in all_arguments(function)}
            found |= _Scope(scope, own, {}).early_in(function.body)
    return found


def _declared(node: ast.AST, *kinds: type[ast.Global] | type[ast.Nonlocal]) -> set[str]:
    return {name for one in statements(node) if isinstance(one, kinds) for name in one.names}


class _Scope:
    """One scope's statements in the order in which they run. `needs`: the globals that a call of a function reads."""

    def __init__(self, scope: str, own: set[str], needs: dict[str, set[str]]) -> None:
        self.scope = scope
        self.own = own
        self.needs = needs
        self.bound: set[str] = set()  # on some way to where we are
        self.early: Early = {}

    def early_in(self, body: Sequence[ast.stmt]) -> Early:
        self.suite(body)
        return self.early

    def suite(self, body: Sequence[ast.stmt]) -> None:
        for statement in body:
            self.statement(statement)

    def either(self, *suites: Sequence[ast.stmt]) -> None:
        """Suites of which one runs."""
        before, after = self.bound, set(self.bound)
        for one in suites:
            self.bound = set(before)
            self.suite(one)
            after |= self.bound
        self.bound = after

    def read(self, name: str, line: int) -> None:
        if name in self.own and name not in self.bound:
            self.early.setdefault((self.scope, name), line)

    def statement(self, node: ast.stmt) -> None:
        if isinstance(node, ast.If):
            self.expression(node.test)
            self.either(node.body, node.orelse)
        elif isinstance(node, _LOOPS):
            self._loop(node)
        elif isinstance(node, ast.Match):
            self.expression(node.subject)
            self.bound |= bindings(case.pattern for case in node.cases)
            self.either(*(case.body for case in node.cases))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._definition(node)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.bound |= set(map(bound_name, node.names))
        elif isinstance(node, ast.AugAssign):
            self.expression(node.value)
            if isinstance(node.target, ast.Name):
                self.read(node.target.id, node.lineno)
            self.expression(node.target)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            if node.value is not None:  # `x: int` binds nothing
                for part in (node.value, *(node.targets if isinstance(node, ast.Assign) else [node.target])):
                    self.expression(part)
        elif isinstance(node, _Try):
            self.suite(node.body)
            self.bound |= bindings(node.body)  # which an exception may have left before it deleted anything
            for handler in node.handlers:
                self.bound |= {handler.name} if handler.name else set()
                self.expression(handler.type or ast.Constant(None))
            self.either(node.orelse, *(handler.body for handler in node.handlers))
            self.suite(node.finalbody)
        else:
            for child in children(node):
                self.statement(child) if isinstance(child, ast.stmt) else self.expression(child)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While) -> None:
        if not isinstance(node, ast.While):
            self.expression(node.iter)
            self.bound |= bindings([node.target])
        self.bound |= bindings(node.body)
        if isinstance(node, ast.While):
            self.expression(node.test)
        self.either(node.body)
        self.suite(node.orelse)

    def _definition(self, node: Function | ast.ClassDef) -> None:
        if isinstance(node, ast.ClassDef):
            own, bound = self.own, set(self.bound)
            self.own = own - bindings(node.body)
            self.suite(node.body)
            self.own, self.bound = own, bound
        for part in (
            *node.decorator_list,
            *(node.bases if isinstance(node, ast.ClassDef) else defaults(node.args)),
        ):
            self.expression(part)
        self.bound.add(node.name)

    def expression(self, node: ast.AST) -> None:
        """What is evaluated at once: no lambda's body, and of a generator its first iterable."""
        if isinstance(node, ast.Name):
            self._name(node)
        elif isinstance(node, ast.GeneratorExp):
            self.expression(node.generators[0].iter)
            self.bound |= bindings(assignments_inside(node))
        elif isinstance(node, ast.Lambda):
            for default in defaults(node.args):
                self.expression(default)
        elif isinstance(node, COMPREHENSIONS):
            hidden = bindings(one.target for one in node.generators) - self.bound
            for generator in node.generators:
                for part in (generator.iter, generator.target, *generator.ifs):
                    self.expression(part)
            for part in [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]:
                self.expression(part)
            self.bound -= hidden
        elif isinstance(node, ast.NamedExpr):
            self.expression(node.value)
            self.expression(node.target)
        else:
            for child in children(node):
                self.expression(child)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                for name in self.needs.get(node.func.id, ()):
                    self.read(name, node.lineno)

    def _name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Store):
            self.bound.add(node.id)
            return
        self.read(node.id, node.lineno)
        if isinstance(node.ctx, ast.Del):
            self.bound.discard(node.id)


def _global_needs(tree: ast.Module, own: set[str]) -> dict[str, set[str]]:
    """Function of the module -> the module's names that a call of it reads for certain, callees included."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    reads: dict[str, set[str]] = {}
    for name, function in functions.items():
        certain = {one for statement in function.body for one in _certain_reads(statement)}
        reads[name] = certain - own_names(function)
    needs = {name: (used & own) - functions.keys() for name, used in reads.items()}
    for _ in functions:  # calls among them, to a fixpoint
        grown = {
            name: used.union(*(needs.get(callee, ()) for callee in reads[name]))
            for name, used in needs.items()
        }
        if grown == needs:
            break
        needs = grown
    return needs


def _certain_reads(statement: ast.stmt) -> Iterator[str]:
    """Names read whenever the statement runs: nothing inside branches, loops or inner scopes."""
    if isinstance(statement, ast.Expr | ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return):
        stack: list[ast.AST] = [statement]
    elif isinstance(statement, ast.For):
        stack = [statement.iter]
    elif isinstance(statement, ast.With):
        stack = [item.context_expr for item in statement.items]
        for inner in statement.body:
            yield from _certain_reads(inner)
    else:
        return
    while stack:
        node = stack.pop()
        if isinstance(node, (*_SCOPES, *COMPREHENSIONS, ast.IfExp, ast.BoolOp)):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        stack += children(node)
