"""For CT602: what each process goes on printing of its own share: shapes of batches, and numbers inside a module.

What:   `print(images.shape)` of a batch of a prepared loader.
Why:    The first size is this process's number of rows, which is what its model sees.
Before: `print(images.shape)`
After:  `accelerator.print(images.shape)`
"""

from __future__ import annotations

import ast

from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values

RULE = "CT602"
PRINTING = frozenset({"print", "info", "debug", "warning", "write", "log"})


def plan(context: Context) -> None:
    """Notes the first place where the shape of a batch of prepared loaders is printed or logged, and the first number
    that a module prints of its batch."""
    printing = [call for call in context.facts.calls if last_name(call.func) in PRINTING]
    inside = next((c for c in printing if context.facts.in_module(c) and _shows_share(context, c)), None)
    if inside is not None:
        context.note(
            RULE,
            inside,
            "this is printed inside a module, by every process, of its own share of the batch",
            "return it from the module, and print it where the script trains",
        )
    shown = next((c for c in printing if any(_is_shape(context, part) for part in walk(c))), None)
    if shown is not None:
        context.note(
            RULE,
            shown,
            "the shape printed here is that of this process's part of the batch",
            "nothing to do; the global batch has the rows of all processes",
            Severity.NOTE,
        )


def calls_by_one_process(context: Context, call: ast.Call) -> list[ast.Call]:
    """Where a method of a module that only prints is called with global numbers: one process can call it alone."""
    facts = context.facts
    function = facts.enclosing_function(call)
    if function is None or function in facts.interp.escaped or not _only_prints(context, function):
        return []
    reads = (n for n in walk(function) if isinstance(n, ast.Name | ast.Subscript | ast.Attribute))
    if any(not v.host for n in reads for v in batch_values(facts, n)):
        return []
    sites = facts.callers.get(function, [])
    by_itself = (isinstance(facts.table.parents.get(s), ast.Expr) and context.reachable(s) for s in sites)
    return sites if all(by_itself) else []


def _only_prints(context: Context, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return bool(body) and all(
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and context.facts.paths(s.value.func) == {"builtins.print"}
        for s in body
    )


def _shows_share(context: Context, call: ast.Call) -> bool:
    """Whether a call prints what depends on a share, and no process can make it alone."""
    loaders = context.subject.loaders
    values = (v for part in walk(call) for v in batch_values(context.facts, part))
    own = any(v.kind != "shape" and v.loader in loaders for v in values)
    return own and not calls_by_one_process(context, call)


def _is_shape(context: Context, node: ast.AST) -> bool:
    """A whole shape: one of its sizes is a number, which other rules make the global one."""
    around = context.facts.table.parents.get(node)
    if isinstance(around, ast.Subscript) and around.value is node:
        return False
    values = batch_values(context.facts, node)
    return any(v.kind == "shape" and not v.host and v.loader in context.subject.loaders for v in values)
