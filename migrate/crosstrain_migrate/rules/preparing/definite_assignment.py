"""Definite assignment: whether a variable certainly exists at a place. One that only a condition binds may not."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.syntax.nodes import all_arguments, written
from crosstrain_migrate.syntax.scopes import suites
from crosstrain_migrate.syntax.walks import children, walk

from .prepared_objects import suite_of

_ASKS_NAMES = frozenset({"locals", "globals", "vars", "dir", "NameError", "UnboundLocalError"})
# What may leave a part of itself out.
_LAZY = (ast.Lambda, ast.IfExp, ast.BoolOp, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ENDS = frozenset({"exit", "sys.exit", "quit", "os._exit", "parser.error"})


def surely_bound(facts: Facts, name: str, after: ast.stmt) -> bool:
    """Whether `name` (a variable, or `self.name`) is bound whenever the statement `after` has run, or would have failed
    without it: `if small: net = A()`, `elif large: net = B()`, and then `net.parameters()` in any case."""
    current: ast.AST = after
    while True:
        parent = facts.table.parents[current]
        suite = next((block for block in suites(parent) if current in block), [])
        done = suite[: suite.index(current) + 1] if isinstance(current, ast.stmt) and suite else []
        if any(_binds(s, name) or _reads(s, name) for s in done):
            return True
        if parent in facts.table.scopes or isinstance(parent, ast.Module):
            return isinstance(parent, ast.FunctionDef | ast.AsyncFunctionDef) and name in {
                argument.arg for argument in all_arguments(parent)
            }
        current = parent


def sole_condition(facts: Facts, name: str, stores: list[ast.stmt], position: ast.stmt) -> ast.If | None:
    """The `if` in the suite of `position` that alone binds `name`, where nothing asks whether the name is bound."""
    suite = suite_of(facts, position)
    around = {
        statement
        for store in stores
        for statement in (store, *facts.table.ancestors(store))
        if isinstance(statement, ast.stmt) and statement in suite
    }
    condition = around.pop() if len(around) == 1 else None
    asked = any(facts.names.get(name) for name in _ASKS_NAMES)
    if not isinstance(condition, ast.If) or not name.isidentifier() or asked:
        return None
    return condition


def _binds_any(suite: list[ast.stmt], name: str) -> bool:
    return any(_binds(statement, name) for statement in suite)


def _binds(node: ast.stmt, name: str) -> bool:
    if isinstance(node, ast.If):
        return _binds_or_ends(node.body, name) and _binds_or_ends(node.orelse, name)
    if isinstance(node, ast.Try):
        handled = all(_binds_or_ends(handler.body, name) for handler in node.handlers)
        return _binds_any(node.finalbody, name) or (_binds_any([*node.body, *node.orelse], name) and handled)
    if isinstance(node, ast.Match):
        whole = any(
            isinstance(c.pattern, ast.MatchAs) and c.pattern.pattern is None and c.guard is None
            for c in node.cases
        )
        return whole and all(_binds_or_ends(case.body, name) for case in node.cases)
    if isinstance(node, ast.With | ast.AsyncWith):
        bound = any(i.optional_vars is not None and _stores(i.optional_vars, name) for i in node.items)
        return bound or _binds_any(node.body, name)
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name == name
    if isinstance(node, ast.For | ast.AsyncFor | ast.While):
        return False
    return _stores(node, name)


def _reads(node: ast.stmt, name: str) -> bool:
    """Whether a plain statement asks for the value of `name` whenever it runs."""
    if not isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr | ast.Return):
        return False
    work: list[ast.AST] = [node]
    while work:
        part = work.pop()
        if isinstance(part, _LAZY):
            continue
        loads = isinstance(part, ast.Name | ast.Attribute) and isinstance(part.ctx, ast.Load)
        if loads and written(part) == name:
            return True
        work.extend(children(part))
    return False


def _binds_or_ends(suite: list[ast.stmt], name: str) -> bool:
    return _binds_any(suite, name) or (bool(suite) and _ends(suite[-1]))


def _ends(node: ast.stmt) -> bool:
    if isinstance(node, ast.If):
        return bool(node.orelse) and _ends(node.body[-1]) and _ends(node.orelse[-1])
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return written(node.value.func) in _ENDS
    return isinstance(node, ast.Return | ast.Raise | ast.Continue | ast.Break)


def _stores(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return any((alias.asname or alias.name.split(".")[0]) == name for alias in node.names)
    return any(
        isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store) and written(n) == name
        for n in walk(node)
    )
