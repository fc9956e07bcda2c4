"""Calls of what the script imports, and of builtins."""

from __future__ import annotations

import ast
from dataclasses import replace

from crosstrain_migrate.facts import containers, context, tensors
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.argument_values import batch_values_of, note_parameters
from crosstrain_migrate.facts.arguments import keywords_of
from crosstrain_migrate.facts.attributes import named
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.iteration import iterate
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.previews import previewed_at
from crosstrain_migrate.facts.regions import in_module
from crosstrain_migrate.facts.values import (
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

PASS_THROUGH = frozenset(
    {"builtins.list", "builtins.tuple", "builtins.sorted", "builtins.set", "builtins.filter"}
    | {"itertools.chain", "copy.copy"}
)


def call_symbol(interp: Interpretation, path: str, node: ast.Call) -> Values:
    name = api.last(path)
    if path in {"builtins.next"} and node.args:
        return iterate(interp, interp.of(node.args[0]), node)
    if path in {"builtins.enumerate"} and node.args:
        return frozenset(iterator(v, node, counted=True) for v in interp.of(node.args[0]))
    if path in {"builtins.zip"}:
        return _zip(interp, node)
    if path in api.ITERATORS and node.args:
        return _iterator(interp, path, node)
    if path == "builtins.map" and len(node.args) == 2:
        return _map(interp, node)
    if path in PASS_THROUGH:
        return _passed(interp, node)
    if path == "builtins.len" and node.args:
        return _length(interp, node)
    if path in {"copy.deepcopy"} and node.args:
        return _copy(interp, node)
    if api.is_optimizer_class(path):
        note_parameters(interp, node)
        return frozenset({External(path, node)})
    if (
        api.is_scheduler_class(path)
        or api.is_module_class(path)
        or api.is_loss_class(path)
        or api.is_loader_class(path)
    ):
        return frozenset({External(path, node)})
    if path.startswith("torch.nn.functional.") and name in api.LOSSES:
        return loss(interp, node, keywords_of(node), name)
    if path in {"torch.device", "torch.accelerator.current_accelerator"}:
        return frozenset({External("torch.device", node)})
    if path in api.PARAMETERS:
        return frozenset({External("torch.nn.Parameter", node)})
    if path == "torch.autograd.Variable" and node.args:
        return interp.of(node.args[0])
    if path == "torch.nn.SyncBatchNorm.convert_sync_batchnorm" and node.args:
        return interp.of(node.args[0])
    if path.startswith(("torch.nn.parallel.", "torch.compile")) and node.args:
        return interp.of(node.args[0]) | {External(path, node)}
    if path.startswith(("torch.", "numpy.")) or path in api.HOST_BUILTINS:
        return call_tensor_function(interp, path, name, node)
    if path.startswith("builtins."):
        return _builtin(interp, name, node)
    if in_module(interp, node) and name.endswith("Output") and not node.args:
        return containers.record(interp, node, [])  # a library's record of what a model returns
    note_parameters(interp, node)
    batch_values = of_unknown(interp, node)
    return (
        batch_values
        if any(isinstance(v, FromBatch) for v in batch_values)
        else frozenset({External(path, node)})
    )


def _passed(interp: Interpretation, node: ast.Call) -> Values:
    given = [interp.of(argument) for argument in node.args]
    found = frozenset(v for values in given for v in values if not isinstance(v, Function))
    return found if found or not all(given) else UNKNOWN


def _iterator(interp: Interpretation, path: str, node: ast.Call) -> Values:
    values = interp.of(node.args[0])
    if path == "builtins.list":
        return values
    if node in interp.previews:
        return frozenset({Iterator(previewed_at(node), node)})
    return frozenset(iterator(v, node) for v in values)


def _map(interp: Interpretation, node: ast.Call) -> Values:
    """`map(lambda t: t.to(device), batch)`: of every tensor of a batch, a batch again."""
    over = interp.of(node.args[1])
    elements = iterate(interp, over, node)
    found: set[Value] = set()
    for function in (v.node for v in interp.of(node.args[0]) if isinstance(v, Function)):
        parameters = [*function.args.posonlyargs, *function.args.args]
        if parameters:
            interp.bind_argument(interp.table.scopes[function], parameters[0], elements)
        found |= context.in_context(interp, function, node, frozenset(interp.returns[function]), local=True)
    rows = any(isinstance(v, FromBatch) and v.kind != "batch" for v in over)
    reads = any(isinstance(v, Symbol) and v.path in api.HOST_BUILTINS for v in interp.of(node.args[0]))
    if (rows or reads) and not any(isinstance(v, FromBatch) for v in found):  # `map(float, y)`
        found |= {tensors.other(v, node) for v in elements if isinstance(v, FromBatch)}
    batch_values = [v for v in found if isinstance(v, FromBatch)]
    if not batch_values:
        interp.store(node, ANY, found)
        return frozenset({Sequence(node)})
    parts = any(isinstance(v, FromBatch) and v.kind == "batch" for v in over)
    return frozenset(
        replace(s, kind="batch") if parts and s.kind == "rows" else tensors.other(s, node)
        for s in batch_values
    )


def _zip(interp: Interpretation, node: ast.Call) -> Values:
    for index, argument in enumerate(node.args):
        interp.store(node, index, iterate(interp, interp.of(argument), node))
    pair = Sequence(node)
    interp.store(node.func, ANY, {pair})
    return frozenset({Sequence(node.func)})


def _length(interp: Interpretation, node: ast.Call) -> Values:
    found: set[Value] = set()
    for value in interp.of(node.args[0]):
        if interp.is_loader(value):
            found.add(Length(value))
        elif isinstance(value, FromBatch) and value.kind in {"rows", "batch"} and not value.host:
            found.add(tensors.collapsed(value, "count", node))
        else:
            found |= UNKNOWN
    return frozenset(found)


def _copy(interp: Interpretation, node: ast.Call) -> Values:
    found: set[Value] = set()
    for value in interp.of(node.args[0]):
        if isinstance(value, Instance):
            found.add(Instance(value.cls, node))
        elif isinstance(value, External):
            found.add(External(value.path, node))
        else:
            found.add(value)
    return frozenset(found)


def _builtin(interp: Interpretation, name: str, node: ast.Call) -> Values:
    if name in {"print", "isinstance", "hasattr", "range", "type", "id", "super", "open", "input"}:
        return UNKNOWN
    if name == "dict":
        return _dict(interp, node)
    if name == "getattr" and len(node.args) >= 2:
        return _getattr(interp, node)
    if name in {"sum", "max", "min", "abs", "round", "pow"}:
        return _host_reduction(interp, name, node)
    return of_unknown(interp, node)


def _getattr(interp: Interpretation, node: ast.Call) -> Values:
    name, default = node.args[1], node.args[2:]
    found = {v for part in default for v in interp.of(part)}
    for owner in interp.of(node.args[0]):
        found |= named(interp, owner, name, node)
    parent = interp.table.parents.get(node)
    if not (isinstance(parent, ast.Call) and parent.func is node):
        interp.escaped.update(v.node for v in found if isinstance(v, Function))
    return frozenset(found)


def _dict(interp: Interpretation, node: ast.Call) -> Values:
    for value in (v for a in node.args for v in interp.of(a)):
        if isinstance(value, Sequence):
            interp.store(node, ANY, interp.element(value))
    for key, argument in keywords_of(node).items():
        interp.store(node, key, interp.of(argument))
    batch_values = of_unknown(interp, node)
    return frozenset({Sequence(node), *(v for v in batch_values if isinstance(v, FromBatch) and node.args)})


def _host_reduction(interp: Interpretation, name: str, node: ast.Call) -> Values:
    batch_values = batch_values_of(interp, node.args)
    if not batch_values:
        return UNKNOWN
    if name == "round":
        return frozenset(s if s.host else tensors.other(s, node) for s in batch_values)
    if name == "sum" and all(s.kind in {"mean", "sum"} for s in batch_values):
        return frozenset(batch_values)
    if name == "sum" and isinstance(node.args[0], ast.GeneratorExp | ast.ListComp):
        # of the tensors that several models make of one batch
        return frozenset(
            replace(s, kind="rows") if s.kind == "batch" else tensors.other(s, node) for s in batch_values
        )
    return frozenset(tensors.other(s, node) for s in batch_values)
