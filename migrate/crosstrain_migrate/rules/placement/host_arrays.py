"""CT104 for batches that the script left on the CPU and reads there: the prepared loader puts them on the device.

What:   `x.numpy()`, tensors that are passed to NumPy, and tensors that are computed with one that the script has brought
        to the CPU, get a `.cpu()`.
Why:    NumPy cannot read a tensor on a GPU, and tensors on two devices cannot be computed with.
Before: `points = x.numpy()`; `hits = model(x).argmax(1).cpu() == y`
After:  `points = x.cpu().numpy()`; `hits = model(x).argmax(1).cpu() == y.cpu()`
Leaves: tensors that `.cpu()` or `.to("cpu")` has brought to the CPU already.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.tensors import PER_SAMPLE
from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.rules.numbers.batch_values import local_batch_values
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.walks import walk

from .devices import is_cpu
from .on_the_cpu import bound_to, comes_through

RULE = "CT104"
PAIRWISE = frozenset({"eq", "ne", "lt", "le", "gt", "ge", "add", "sub", "mul", "div", "equal", "allclose"})
# Methods whose results are not on the CPU, or are no tensors.
LEAVES = frozenset({"to", "cuda", "item", "tolist", "size"})
COLLAPSES = frozenset({"sum", "mean", "max", "min"})  # without a dimension: one number may meet any tensor
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
        by_numpy = any(path.startswith("numpy.") for path in context.facts.paths(call.func))
        for argument in call.args if by_numpy else ():
            if not isinstance(argument, ast.Starred) and _stays_on_device(context, argument):
                _fetch(context, argument, REASON)
    for together in _meetings(context):
        here = [tensor for tensor in together if _is_on_host(context, tensor, frozenset())]
        for tensor in together if here else ():
            trained = any(part in context.facts.loss_slice for part in walk(tensor))
            if tensor not in here and not trained and _stays_on_device(context, tensor):
                _fetch(context, tensor, "what it is computed with is on the CPU")


def _fetch(context: Context, tensor: ast.expr, reason: str) -> None:
    for index, edit in enumerate(context.edits):
        if isinstance(edit, e.Replace) and edit.node is tensor:  # gathered in this place
            context.edits[index] = replace(edit, template=f"{edit.template}.cpu()")
            return
    template = "({x}).cpu()" if _is_loose(tensor) else "{x}.cpu()"
    context.replace(tensor, RULE, reason, template, x=tensor)


def _meetings(context: Context) -> Iterator[list[ast.expr]]:
    """Expressions that are computed together: the sides of an operator, or the arguments of another library's function."""
    facts = context.facts
    for node in facts.each(ast.BinOp, ast.Compare, ast.Call):
        if facts.in_module(node) or not facts.is_reached(node):
            continue
        if isinstance(node, ast.BinOp):
            yield [node.left, node.right]
        elif isinstance(node, ast.Compare):
            yield [node.left, *node.comparators]
        elif isinstance(node.func, ast.Attribute) and node.func.attr in PAIRWISE:
            yield [node.func.value, *arguments_of(node)]
        else:
            paths = facts.paths(node.func)
            if paths and not any(path.startswith(("builtins.", "torch.")) for path in paths):
                yield arguments_of(node)


def _is_loose(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp | ast.UnaryOp | ast.IfExp | ast.Compare | ast.BoolOp)


def _stays_on_device(context: Context, tensor: ast.expr) -> bool:
    """Whether a tensor is rows of a prepared loader, or was computed from them, and nothing has brought it to the CPU."""
    found = local_batch_values(context.facts, tensor, context.subject.loaders - context.subject.on_the_cpu)
    if not found or any(s.kind not in PER_SAMPLE for s in found):  # a count, a size, or what may be one
        return False
    if any(isinstance(x, e.Replace) and x.node is tensor and ".cpu()" in x.template for x in context.edits):
        return False
    return not comes_through(context.facts, tensor, _fetches)


def _is_on_host(context: Context, node: ast.AST, seen: frozenset[ast.AST]) -> bool:
    """Whether `node` is rows that the script has brought to the CPU, or that methods and operators have made of such."""
    if node in seen:
        return False
    seen = seen | {node}
    if isinstance(node, ast.Call):
        if not isinstance(node.func, ast.Attribute) or _fetches(node):
            return isinstance(node.func, ast.Attribute)
        ends = LEAVES if arguments_of(node) else LEAVES | COLLAPSES
        return node.func.attr not in ends and _is_on_host(context, node.func.value, seen)
    if isinstance(node, ast.Subscript):
        return _is_on_host(context, node.value, seen)
    if isinstance(node, ast.BinOp):
        return any(_is_on_host(context, side, seen) for side in (node.left, node.right))
    sources = bound_to(context.facts, node)
    return bool(sources) and all(_is_on_host(context, source, seen) for source in sources)


def _fetches(call: ast.Call) -> bool:
    """`x.cpu()` or `x.to("cpu")`"""
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    return method == "cpu" or (method == "to" and any(map(is_cpu, arguments_of(call))))
