"""What each kind of statement adds to what the interpreter knows: bindings, loops, returns."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from typing import Any

from crosstrain_migrate.syntax.program import LOCAL
from crosstrain_migrate.syntax.walks import children, walk

from . import attributes, lifetimes
from . import torch_api as api
from .arguments import positional_of
from .assignment import assign
from .expressions import combine
from .interpretation import Interpretation
from .iteration import iterate
from .values import NOTHING, UNKNOWN, Class, FromBatch, Function, Method, Symbol, Values


def run_body(interp: Interpretation, body: list[ast.stmt]) -> None:
    for statement in body:
        if statement in interp.constants.dead:
            continue
        if statement in interp.watch.settled:
            if statement.__class__ in _COMPOUND:
                _run_suites(interp, statement)
            continue
        outer = interp.watch.enter(statement)
        _EFFECTS.get(type(statement), _run_parts)(interp, statement)
        interp.watch.leave(outer)


def _run_parts(interp: Interpretation, node: ast.AST) -> None:
    """Evaluates the expressions and runs the suites of a statement that has no meaning of its own."""
    for child in children(node):
        if isinstance(child, ast.expr):
            interp.eval(child)
        elif isinstance(child, ast.stmt):
            run_body(interp, [child])
        elif isinstance(child, ast.withitem):
            values = interp.eval(child.context_expr)
            if child.optional_vars is not None:
                assign(interp, child.optional_vars, values)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            _run_parts(interp, child)


def _define(interp: Interpretation, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
    for base in node.bases if isinstance(node, ast.ClassDef) else ():
        interp.eval(base)
    defined = Class(node) if isinstance(node, ast.ClassDef) else Function(node)
    for decorator in node.decorator_list:
        _decorate(interp, interp.eval(decorator), defined)
    interp.bind(interp.table.of_node[node], node.name, {defined}, node)


def _decorate(interp: Interpretation, decorators: Values, decorated: Function | Class) -> None:
    """Gives what is decorated to a decorator such as `@register("net")`, which keeps it in a dict of models. A decorator
    that calls its argument keeps nothing: a wrapper around a function does not tell who calls it."""
    for decorator in decorators:
        bound = isinstance(decorator, Method)
        function = decorator.function if isinstance(decorator, Method) else decorator
        if not isinstance(function, Function):
            continue
        for parameter in positional_of(function.node)[bound:][:1]:
            called = (n.func for n in walk(function.node) if isinstance(n, ast.Call))
            if not any(isinstance(f, ast.Name) and f.id == parameter.arg for f in called):
                interp.bind_argument(interp.table.scopes[function.node], parameter, {decorated})


def _import(interp: Interpretation, node: ast.Import) -> None:
    scope = interp.table.of_node[node]
    for alias in node.names:
        name = alias.asname or alias.name.split(".")[0]
        path = alias.name if alias.asname else name
        linked = interp.linked(node, 0, path)
        interp.bind(scope, name, {Symbol(path) if linked is None else Symbol(LOCAL + linked)}, alias)


def _import_from(interp: Interpretation, node: ast.ImportFrom) -> None:
    scope = interp.table.of_node[node]
    linked = interp.linked(node, node.level, node.module or "")
    prefix = "." * node.level + (node.module or "")
    for alias in node.names:
        if alias.name == "*":
            continue
        if linked is not None:
            values = attributes.of_module(interp, linked, alias.name)
        else:
            values = frozenset({Symbol(api.canonical(f"{prefix}.{alias.name}"))})
        interp.bind(scope, alias.asname or alias.name, values, alias)


def _assign(interp: Interpretation, node: ast.Assign) -> None:
    values = interp.eval(node.value)
    if lifetimes.accumulated(interp, node) is not None or lifetimes.carried(interp, node):
        values = lifetimes.made_global(values)
    for target in node.targets:
        assign(interp, target, values)


def _assign_annotated(interp: Interpretation, node: ast.AnnAssign) -> None:
    if node.value is not None:
        assign(interp, node.target, interp.eval(node.value))


def _augment(interp: Interpretation, node: ast.AugAssign) -> None:
    """`total += x` makes `total` what `x` is: its start value does not depend on the share."""
    values = interp.eval(node.value)
    if isinstance(node.target, ast.Name):
        before = NOTHING.union(*map(interp.definitions.get, interp.bindings(node.target)))
    else:
        before = interp.eval(node.target)
    batch_values = frozenset(v for v in before if isinstance(v, FromBatch))
    if isinstance(node.op, ast.Add | ast.Sub) and not batch_values:
        result = values | before
    else:
        result = combine(node.op, batch_values or before, values, node)
    if lifetimes.outlives(interp, node.target, node):
        result = lifetimes.made_global(result)
    assign(interp, node.target, result)


def _for(interp: Interpretation, node: ast.For | ast.AsyncFor) -> None:
    items = iterate(interp, interp.eval(node.iter), node)
    assign(interp, node.target, items)
    run_body(interp, node.body)
    run_body(interp, node.orelse)


def _return(interp: Interpretation, node: ast.Return) -> None:
    values = interp.eval(node.value) if node.value is not None else UNKNOWN
    function = interp.table.function_around(node)
    if function is not None:
        interp.merge(interp.returns.cell(function), values)


# The statements whose suites belong to the same scope, and the fields that hold these, in the order of the text.
_COMPOUND = {ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.Match}
_COMPOUND |= {ast.TryStar} if sys.version_info >= (3, 11) else set()
_SUITES = ("body", "handlers", "orelse", "finalbody", "cases")


def _run_suites(interp: Interpretation, node: ast.stmt) -> None:
    for name in _SUITES:
        parts = getattr(node, name, [])
        if name in {"handlers", "cases"}:
            for part in parts:
                run_body(interp, part.body)
        elif parts:
            run_body(interp, parts)


_EFFECTS: dict[type[ast.stmt], Callable[[Interpretation, Any], None]] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), _define),
    ast.Import: _import,
    ast.ImportFrom: _import_from,
    ast.Assign: _assign,
    ast.AnnAssign: _assign_annotated,
    ast.AugAssign: _augment,
    **dict.fromkeys((ast.For, ast.AsyncFor), _for),
    ast.Return: _return,
}
