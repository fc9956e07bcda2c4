"""Functions that only compute: whatever their tests ask, all that comes of it is what they return."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import External
from crosstrain_migrate.syntax.walks import walk

CHANGES_STATE = ast.Global | ast.Nonlocal | ast.Yield | ast.YieldFrom | ast.Await


def only_computes(facts: Facts, function: ast.AST, seen: frozenset[ast.AST] = frozenset()) -> bool:
    """Whether nothing in `function` trains, goes over a loader, calls a module or keeps something: processes may take
    different ways through it."""
    if function in seen:
        return True
    for node in walk(function):
        if node in facts.interp.batch_loops or isinstance(node, CHANGES_STATE):
            return False
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.Call) and not _computes(facts, node, seen | {function}):
            return False
    return True


def _computes(facts: Facts, call: ast.Call, seen: frozenset[ast.AST]) -> bool:
    if any(facts.interp.is_module(value) for value in facts.of(call.func)):
        return False
    if isinstance(call.func, ast.Attribute):
        if call.func.attr in ("step", "backward"):
            return False
        kept = {*facts.optimizers, *facts.schedulers, *facts.loaders}
        if any(v in kept for v in facts.of(call.func.value) if isinstance(v, External)):
            return False
    return all(only_computes(facts, function, seen) for function in facts.targets(call))


def only_raises(test: ast.If | ast.While) -> bool:
    """`if bad: raise ValueError(...)`: a process that comes there ends, and the others with it."""
    return not test.orelse and all(isinstance(s, ast.Raise) for s in test.body)
