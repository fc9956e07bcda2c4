"""For CT602: what is printed of one process's share and stays so: shapes of batches, and numbers inside a module.

What:   `print(images.shape)` of a batch of a prepared loader.
Why:    The first size is this process's number of rows; it is what its model sees, so it is left as it is.
Before: `print(images.shape)`
After:  `accelerator.print(images.shape)`
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import FromBatch
from crosstrain_migrate.results import Severity
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

RULE = "CT602"
SPEAKING = frozenset({"print", "info", "debug", "warning", "write", "log"})


def plan(context: Context) -> None:
    """Names the first place where the shape of a batch of prepared loaders is printed or logged, and the first number
    that a module prints of its batch."""
    speaking = [call for call in context.facts.calls if _speaks(call)]
    _of_modules(context, [call for call in speaking if context.facts.in_module(call)])
    for call in speaking:
        if any(_is_shape(context, part) for part in walk(call)):
            context.note(
                RULE,
                call,
                "the shape printed here is that of this process's part of the batch",
                "nothing to do; the global batch has the rows of all processes",
                Severity.NOTE,
            )
            return


def _speaks(call: ast.Call) -> bool:
    return last_name(call.func) in SPEAKING


def said_once(context: Context, call: ast.Call) -> list[ast.Call]:
    """Where a method of a module that only prints is called with global numbers: one process can call it alone."""
    facts = context.facts
    function = facts.enclosing_function(call)
    sites = facts.callers.get(function, []) if function is not None else []
    if function is None or function in facts.interp.escaped or not _only_prints(context, function):
        return []
    reads = (n for n in walk(function) if isinstance(n, ast.Name | ast.Subscript | ast.Attribute))
    if any(isinstance(v, FromBatch) and not v.host for n in reads for v in facts.of(n)):
        return []
    alone = all(
        isinstance(facts.table.parents.get(site), ast.Expr) and context.reachable(site) for site in sites
    )
    return sites if alone else []


def _only_prints(context: Context, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    body = [s for s in function.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    return bool(body) and all(
        isinstance(s, ast.Expr)
        and isinstance(s.value, ast.Call)
        and context.facts.paths(s.value.func) == {"builtins.print"}
        for s in body
    )


def _of_modules(context: Context, calls: list[ast.Call]) -> None:
    loaders = context.subject.loaders
    for call in calls:
        if said_once(context, call):
            continue
        values = {v for part in walk(call) for v in context.facts.of(part)}
        if any(isinstance(v, FromBatch) and v.kind != "shape" and v.loader in loaders for v in values):
            context.note(
                RULE,
                call,
                "this is printed inside a module, by every process, of its own share of the batch",
                "return it from the module, and print it where the script trains",
            )
            return


def _is_shape(context: Context, node: ast.AST) -> bool:
    """A whole shape: one of its sizes is a number, which other rules make the global one."""
    around = context.facts.table.parents.get(node)
    if isinstance(around, ast.Subscript) and around.value is node:
        return False
    loaders = context.subject.loaders
    return any(
        isinstance(v, FromBatch) and v.kind == "shape" and not v.host and v.loader in loaders
        for v in context.facts.of(node)
    )
