"""Calls of what the script imports, and of builtins."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import replace

from crosstrain_migrate.facts import containers, context, tensors
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.argument_values import batch_values_of, note_parameters
from crosstrain_migrate.facts.arguments import keywords_of, positional_of
from crosstrain_migrate.facts.attributes import by_name
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.iteration import iterate
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.previews import previewed_at
from crosstrain_migrate.facts.values import (
    NOTHING,
    UNKNOWN,
    External,
    FromBatch,
    Function,
    Instance,
    Iterator,
    Length,
    Sequence,
    Symbol,
    Value,
    Values,
)
from crosstrain_migrate.facts.widening import iterator

from .modules import loss
from .tensor_functions import call_tensor_function, of_unknown

Handler = Callable[[Interpretation, ast.Call], Values]


def call_symbol(interp: Interpretation, path: str, node: ast.Call) -> Values:
    name = api.last(path)
    handler = _OF_FIRST.get(path) if node.args else None
    handler = handler or _OF_ALL.get(path)
    if handler is not None:
        return handler(interp, node)
    if path in api.ITERATORS and node.args:
        return _iterator(interp, node)
    role = api.role_of(path)
    if role == "optimizer":
        note_parameters(interp, node)
    if role:
        return frozenset({External(path, node)})
    if path.startswith("torch.nn.functional.") and name in api.LOSSES:
        return loss(interp, node, keywords_of(node), name)
    if path in {"torch.device", "torch.accelerator.current_accelerator"}:
        return frozenset({External("torch.device", node)})
    if path in api.PARAMETERS:
        return frozenset({External("torch.nn.Parameter", node)})
    if path.startswith(("torch.nn.parallel.", "torch.compile")) and node.args:
        return interp.of(node.args[0]) | {External(path, node)}
    if path.startswith(("torch.", "numpy.")) or path in api.HOST_BUILTINS:
        return call_tensor_function(interp, path, name, node)
    if path.startswith("builtins."):
        return UNKNOWN if name in _TELL_NOTHING else of_unknown(interp, node)
    if node in interp.in_modules and name.endswith("Output") and not node.args:
        return containers.record(interp, node, [])  # a library's record of what a model returns
    note_parameters(interp, node)
    found = of_unknown(interp, node)
    return found if found != UNKNOWN else frozenset({External(path, node)})


def _first(interp: Interpretation, node: ast.Call) -> Values:
    return interp.of(node.args[0])


def _next(interp: Interpretation, node: ast.Call) -> Values:
    return iterate(interp, interp.of(node.args[0]), node)


def _enumerate(interp: Interpretation, node: ast.Call) -> Values:
    return frozenset(iterator(v, node, counted=True) for v in interp.of(node.args[0]))


def _iterator(interp: Interpretation, node: ast.Call) -> Values:
    if node in interp.previews:
        return frozenset({Iterator(previewed_at(node), node)})
    return frozenset(iterator(v, node) for v in interp.of(node.args[0]))


def _passed(interp: Interpretation, node: ast.Call) -> Values:
    """What the arguments hold: `sorted(items, key=by_size)` is no function."""
    given = [interp.of(argument) for argument in node.args]
    found = frozenset(v for values in given for v in values if not isinstance(v, Function))
    return found if found or not all(given) else UNKNOWN


def _map(interp: Interpretation, node: ast.Call) -> Values:
    """`map(lambda t: t.to(device), batch)`: applied to every tensor of a batch, it gives a batch again."""
    if len(node.args) != 2:
        return of_unknown(interp, node)
    over = interp.of(node.args[1])
    elements = iterate(interp, over, node)
    found: set[Value] = set()
    for function in (v.node for v in interp.of(node.args[0]) if isinstance(v, Function)):
        parameters = positional_of(function)
        if parameters:
            interp.bind_argument(interp.table.scopes[function], parameters[0], elements)
        found |= context.in_context(interp, function, node, frozenset(interp.returns[function]), local=True)
    kinds = {v.kind for v in over if isinstance(v, FromBatch)}
    reads = any(isinstance(v, Symbol) and v.path in api.HOST_BUILTINS for v in interp.of(node.args[0]))
    if (kinds - {"batch"} or reads) and not any(isinstance(v, FromBatch) for v in found):  # `map(float, y)`
        found |= {tensors.other(v, node) for v in elements if isinstance(v, FromBatch)}
    batch_values = [v for v in found if isinstance(v, FromBatch)]
    if not batch_values:
        interp.store(node, ANY, found)
        return frozenset({Sequence(node)})
    return frozenset(
        replace(v, kind="batch") if "batch" in kinds and v.kind == "rows" else tensors.other(v, node)
        for v in batch_values
    )


def _zip(interp: Interpretation, node: ast.Call) -> Values:
    for index, argument in enumerate(node.args):
        interp.store(node, index, iterate(interp, interp.of(argument), node))
    interp.store(node.func, ANY, {Sequence(node)})
    return frozenset({Sequence(node.func)})


def _length(interp: Interpretation, node: ast.Call) -> Values:
    def length(value: Value) -> Values:
        if interp.is_loader(value):
            return frozenset({Length(value)})
        if isinstance(value, FromBatch) and value.kind in {"rows", "batch"} and not value.host:
            return frozenset({tensors.collapsed(value, "count", node)})
        return UNKNOWN

    return NOTHING.union(*map(length, interp.of(node.args[0])))


def _copy(interp: Interpretation, node: ast.Call) -> Values:
    def copied(value: Value) -> Value:
        if isinstance(value, Instance):
            return Instance(value.cls, node)
        return External(value.path, node) if isinstance(value, External) else value

    return frozenset(map(copied, interp.of(node.args[0])))


def _getattr(interp: Interpretation, node: ast.Call) -> Values:
    if len(node.args) < 2:
        return of_unknown(interp, node)
    found = {v for default in node.args[2:] for v in interp.of(default)}
    for owner in interp.of(node.args[0]):
        found |= by_name(interp, owner, node.args[1], node)
    if not interp.is_called(node):
        interp.escaped.update(v.node for v in found if isinstance(v, Function))
    return frozenset(found)


def _dict(interp: Interpretation, node: ast.Call) -> Values:
    for value in (v for a in node.args for v in interp.of(a)):
        if isinstance(value, Sequence):
            interp.store(node, ANY, interp.element(value))
    for key, argument in keywords_of(node).items():
        interp.store(node, key, interp.of(argument))
    batch_values = of_unknown(interp, node) if node.args else UNKNOWN
    return (batch_values - UNKNOWN) | {Sequence(node)}


def _reduced(interp: Interpretation, node: ast.Call) -> Values:
    """What Python's own arithmetic makes of numbers from a batch."""
    batch_values = batch_values_of(interp, node.args)
    return frozenset(tensors.other(v, node) for v in batch_values) or UNKNOWN


def _round(interp: Interpretation, node: ast.Call) -> Values:
    batch_values = batch_values_of(interp, node.args)
    return frozenset(v if v.host else tensors.other(v, node) for v in batch_values) or UNKNOWN


def _sum(interp: Interpretation, node: ast.Call) -> Values:
    batch_values = batch_values_of(interp, node.args)
    if batch_values and all(v.kind in {"mean", "sum"} for v in batch_values):
        return frozenset(batch_values)
    if batch_values and isinstance(node.args[0], ast.GeneratorExp | ast.ListComp):
        # Of the tensors that several models make of one batch.
        return frozenset(
            replace(v, kind="rows") if v.kind == "batch" else tensors.other(v, node) for v in batch_values
        )
    return _reduced(interp, node)


_TELL_NOTHING = api.words("print isinstance hasattr range type id super open input")
# What is called with an argument at least.
_OF_FIRST: dict[str, Handler] = {
    "builtins.next": _next,
    "builtins.enumerate": _enumerate,
    "builtins.list": _first,
    "builtins.len": _length,
    "copy.deepcopy": _copy,
    "torch.autograd.Variable": _first,
    "torch.nn.SyncBatchNorm.convert_sync_batchnorm": _first,
}
_OF_ALL: dict[str, Handler] = {
    "builtins.zip": _zip,
    "builtins.map": _map,
    "builtins.dict": _dict,
    "builtins.getattr": _getattr,
    "builtins.sum": _sum,
    "builtins.round": _round,
    **dict.fromkeys(("builtins.max", "builtins.min", "builtins.abs", "builtins.pow"), _reduced),
    **dict.fromkeys(("builtins.list", "builtins.tuple", "builtins.sorted", "builtins.set"), _passed),
    **dict.fromkeys(("builtins.filter", "itertools.chain", "copy.copy"), _passed),
}
