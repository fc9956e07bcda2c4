"""Collate functions of the script's own: whether they keep every row of a batch, in order."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.facts.values import Function, Instance, Method, Value
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.nodes import FunctionNode, last_name
from crosstrain_migrate.syntax.walks import walk

from .bindings import option, receiver

DISORDERS = frozenset(
    {"sort", "sorted", "shuffle", "filter", "sample", "argsort", "randperm", "reverse", "reversed"}
)
NUMBERS = frozenset({"builtins.len", "builtins.float", "builtins.int", "builtins.sum"})


@dataclass(frozen=True)
class Disorder:
    """Where a collate function does not keep every row in its place, and whether it may drop some."""

    node: ast.AST
    drops: bool


def changes_rows(context: Context, loader: Value) -> Disorder | None:
    """What the loader's collate function does to the order or the number of its rows; None when nothing is found."""
    for function in code_of_collate(context, loader):
        for node in walk(function):
            if isinstance(node, ast.comprehension) and node.ifs:
                return Disorder(node.iter, drops=True)
            name = last_name(node.func) if isinstance(node, ast.Call) else ""
            if name in DISORDERS:
                return Disorder(node, drops=name in {"filter", "sample"})
    return None


def number_of_batch(context: Context, loader: Value) -> ast.AST | None:
    """A plain number among what the loader's collate function returns: it is one for a whole share, not one for a row."""
    for function in code_of_collate(context, loader):
        for node in walk(function):
            value = node.value if isinstance(node, ast.Return) else None
            parts = value.elts if isinstance(value, ast.Tuple | ast.List) else []
            parts = value.values if isinstance(value, ast.Dict) else parts
            for part in parts:
                if isinstance(part, ast.Call) and (
                    receiver(part, "item") is not None or context.facts.paths(part.func) & NUMBERS
                ):
                    return part
    return None


def code_of_collate(context: Context, loader: Value) -> list[FunctionNode]:
    """The loader's collate function, where it is the script's own: a partial one, and what a lambda calls, too."""
    given = option(loader, "collate_fn")
    return [] if given is None else _code_of(context, given)


def _code_of(context: Context, given: ast.expr) -> list[FunctionNode]:
    found: list[FunctionNode] = []
    for value in context.facts.of(given):
        if isinstance(value, Method):
            found.append(value.function.node)
        elif isinstance(value, Instance):
            method = context.facts.interp.method(value.cls, "__call__")
            found += [method] if method is not None else []
        elif isinstance(value, Function):
            body = value.node.body
            found += context.facts.targets(body) if isinstance(body, ast.Call) else []
            found.append(value.node)
    if isinstance(given, ast.Call) and "functools.partial" in context.facts.paths(given.func) and given.args:
        found += _code_of(context, given.args[0])
    return found
