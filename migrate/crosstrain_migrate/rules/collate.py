"""Collate functions of the script's own: whether they keep every row of a batch, in order."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.roles.values import Function, Instance, Method, Value

from .base import Context

DISORDERS = frozenset(
    {"sort", "sorted", "shuffle", "filter", "sample", "argsort", "randperm", "reverse", "reversed"}
)


@dataclass(frozen=True)
class Disorder:
    """Where a collate function does not keep every row in its place, and whether it may drop some."""

    node: ast.AST
    drops: bool


def changes_rows(context: Context, loader: Value) -> Disorder | None:
    """What the loader's collate function does to the order or the number of its rows; None when nothing is found."""
    site = getattr(loader, "site", None)
    given = (
        next((k.value for k in site.keywords if k.arg == "collate_fn"), None)
        if isinstance(site, ast.Call)
        else None
    )
    for value in context.facts.of(given) if given is not None else ():
        function = _code_of(context, value)
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, ast.comprehension) and node.ifs:
                return Disorder(node.iter, drops=True)
            if isinstance(node, ast.Call):
                name = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                if name in DISORDERS:
                    return Disorder(node, drops=name in {"filter", "sample"})
    return None


def _code_of(context: Context, value: Value) -> ast.AST | None:
    if isinstance(value, Function):
        return value.node
    if isinstance(value, Method):
        return value.function.node
    if isinstance(value, Instance):
        return context.facts.interp.method(value.cls, "__call__")
    return None
