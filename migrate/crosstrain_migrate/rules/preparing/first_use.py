"""What runs before everything that takes part in training exists, so that one `prepare` for all would come too late."""

from __future__ import annotations

import ast
from collections.abc import Collection, Set

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.values import Value
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.scopes import Scope
from crosstrain_migrate.syntax.walks import walk

from .aliases import streams_of


def first_use(
    context: Context, scope: Scope, held: Collection[Value], position: ast.stmt, single: bool = True
) -> ast.AST | None:
    """The first place, up to `position`, that runs a model or iterates a loader that is about to be prepared; or that
    trains, where there is a `single` training."""
    facts, values = context.facts, set(held)
    last = position.end_lineno or position.lineno
    trains = {call for call, _ in facts.backward_calls} if single else set()
    for node in walk(scope.node):
        if getattr(node, "lineno", last + 1) > last or facts.table.of_node.get(node) is not scope:
            continue
        if isinstance(node, ast.For) and facts.interp.iterations.get(node, set()) & values:
            return node
        if isinstance(node, ast.Call) and (
            streams_of(context, node) & values or node in trains or runs(context, node, values)
        ):
            return node
    return None


def runs(context: Context, call: ast.Call, values: set[Value]) -> bool:
    """Whether a call runs a model, or a function that runs one or iterates a loader: one that it is given, or global."""
    facts = context.facts
    if facts.of(call.func) & values & set(context.subject.models):
        return True
    touching = _touching(context, call)
    given = {v for a in arguments_of(call) for v in facts.of(a)}
    return bool(touching and given & values) or any(_uses(context, t, values, frozenset()) for t in touching)


def _touching(context: Context, call: ast.Call) -> list[FunctionNode]:
    """The functions that a call may run and that call a module or backward."""
    return [t for t in context.facts.targets(call) if t in context.facts.interp.touching]


def _uses(context: Context, function: ast.AST, values: set[Value], entered: frozenset[ast.AST]) -> bool:
    """Whether a function, or one that it calls, runs a model or iterates a loader that it does not get as an argument."""
    facts = context.facts
    if function in entered or function in facts.interp.module_methods:
        return False
    for node in walk(function):
        if isinstance(node, ast.For):
            over = facts.interp.iterations.get(node, set()) & values
            if _is_found(context, node.iter, over):
                return True
        elif isinstance(node, ast.Call) and (
            _is_found(context, node.func, facts.of(node.func) & values)
            or any(_uses(context, t, values, entered | {function}) for t in _touching(context, node))
        ):
            return True
    return False


def _is_found(context: Context, node: ast.expr, values: Set[Value]) -> bool:
    """Whether an expression reads one of the values from a variable of a file's top level, or from an object."""
    facts = context.facts
    if values and isinstance(node, ast.Attribute):
        return True
    names = (n for n in walk(node) if isinstance(n, ast.Name) and facts.of(n) & values)
    scopes = (facts.table.of_node[n].resolve(n.id) for n in names)
    return any(scope is not None and scope.parent is None for scope in scopes)
