"""CT104 for what NumPy reads of a batch that the script left on the CPU: the prepared loader puts it on the device.

What:   `x.numpy()`, and functions of NumPy that are given a tensor, where nothing has brought it to the CPU.
Why:    NumPy cannot read a tensor on a GPU.
Before: `points = x.numpy()`
After:  `points = x.cpu().numpy()`
Leaves: what `.cpu()` or `.to("cpu")` has fetched already.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts.tensors import PER_SAMPLE
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.numbers.shard_values import local_shards
from crosstrain_migrate.syntax import edits as e

from .devices import is_cpu

RULE = "CT104"
REASON = "NumPy reads it on the CPU, and the loader puts it on the device"


def plan(context: Context) -> None:
    for call in context.facts.calls:
        if not context.facts.is_reached(call) or context.facts.in_module(call):
            continue
        if isinstance(call.func, ast.Attribute) and call.func.attr == "numpy" and not call.args:
            if _stays_on_device(context, call.func.value):
                template = "({x}).cpu().numpy" if _is_loose(call.func.value) else "{x}.cpu().numpy"
                context.replace(call.func, RULE, REASON, template, x=call.func.value)
            continue
        for argument in _given_to_numpy(context, call):
            if _stays_on_device(context, argument):
                template = "({x}).cpu()" if _is_loose(argument) else "{x}.cpu()"
                context.replace(argument, RULE, REASON, template, x=argument)


def _given_to_numpy(context: Context, call: ast.Call) -> Iterator[ast.expr]:
    if any(path.startswith("numpy.") for path in context.facts.paths(call.func)):
        yield from (a for a in call.args if not isinstance(a, ast.Starred))


def _is_loose(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.IfExp | ast.Compare | ast.BoolOp)


def _stays_on_device(context: Context, tensor: ast.expr) -> bool:
    """Whether a prepared loader's rows, or what was computed from them, arrive here as they are."""
    found = local_shards(context.facts, tensor, context.subject.loaders - context.subject.on_the_cpu)
    if not found or any(s.kind not in PER_SAMPLE for s in found):  # a count, a size, or what may be one
        return False
    if any(isinstance(x, e.Replace) and x.node is tensor and ".cpu()" in x.template for x in context.edits):
        return False
    return not _is_fetched(context, tensor, frozenset())


def _is_fetched(context: Context, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
    """Whether `.cpu()` or `.to("cpu")` stands somewhere on the way to `node`."""
    if node in seen:
        return False
    seen = seen | {node}
    for part in ast.walk(node):
        if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute) and _fetches(part, part.func):
            return True
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load):
            sources = [s for d in context.facts.interp.reaching.get(part, ()) for s in _sources(context, d)]
            if sources and any(_is_fetched(context, source, seen) for source in sources):
                return True
    return False


def _fetches(call: ast.Call, function: ast.Attribute) -> bool:
    given = [*call.args, *(k.value for k in call.keywords)]
    return function.attr == "cpu" or (function.attr == "to" and any(map(is_cpu, given)))


def _sources(context: Context, definition: ast.AST) -> list[ast.expr]:
    """What a name is bound to: the value of an assignment, or what the callers give."""
    if isinstance(definition, ast.arg):
        return context.facts.given(definition)
    statement = context.facts.table.statement_of(definition)
    return [statement.value] if isinstance(statement, ast.Assign | ast.AugAssign) else []
