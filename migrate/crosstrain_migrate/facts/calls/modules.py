"""Calls of layers, models and losses: rows in, rows or their mean or sum out."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import containers, tensors
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.argument_values import batch_values_of
from crosstrain_migrate.facts.arguments import arguments_of, keywords_of
from crosstrain_migrate.facts.evidence import is_open
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.values import UNKNOWN, External, FromBatch, Sequence, Value, Values

from .tensor_functions import of_unknown


def call_external(interp: Interpretation, function: External, node: ast.Call) -> Values:
    if api.is_loss_class(function.path):
        constructor = function.site
        assert isinstance(constructor, ast.Call)
        if (interp.tree, (function, "reduction")) in interp.heap:
            return of_unknown(interp, node)  # `criterion.reduction = ...` later on
        return loss(interp, node, keywords_of(constructor), api.loss_function_of(function.path))
    if function.path == "collections.namedtuple":
        return containers.record(interp, node, _field_names(function.site))
    if function.path in api.RECURRENT:
        return _recurrent(interp, function, node)
    if function.path == "torch.nn.Embedding" or interp.is_module(function):
        return call_module(interp, node)
    return of_unknown(interp, node)


def _field_names(site: ast.AST) -> list[str]:
    if not isinstance(site, ast.Call) or len(site.args) < 2:
        return []
    fields = site.args[1]
    if isinstance(fields, ast.Constant) and isinstance(fields.value, str):
        return fields.value.replace(",", " ").split()
    elements = fields.elts if isinstance(fields, ast.Tuple | ast.List) else []
    return [str(e.value) for e in elements if isinstance(e, ast.Constant)]


def call_module(interp: Interpretation, node: ast.Call) -> Values:
    """A layer or model from a library treats every sample on its own: rows in, rows out."""
    batch_values = [
        s for s in batch_values_of(interp, arguments_of(node)) if s.kind in tensors.PER_SAMPLE | {"other"}
    ]
    if not batch_values:
        return UNKNOWN
    kinds = {s.kind for s in batch_values}
    first = next(k for k in ("other", "order", "mixed", "layers", "rows", "batch") if k in kinds)
    kind = {"batch": "rows", "order": "mixed"}.get(first, first)
    return frozenset(FromBatch(kind, s.loader, s.origins) for s in batch_values)


def _recurrent(interp: Interpretation, function: External, node: ast.Call) -> Values:
    assert isinstance(function.site, ast.Call)
    flag = keywords_of(function.site).get("batch_first")
    batch_first = isinstance(flag, ast.Constant) and flag.value is True
    batch_values = batch_values_of(interp, node.args[:1])
    if not batch_values:
        return UNKNOWN
    for batch_value in batch_values:
        keeps = batch_value.kind == "rows" if batch_first else batch_value.kind == "mixed"
        output = FromBatch(batch_value.kind if keeps else "mixed", batch_value.loader)
        hidden = FromBatch("layers", batch_value.loader)
        interp.store(node, 0, {output})
        interp.store(node, 1, {Sequence(node.func), hidden})
        interp.store(node.func, ANY, {hidden})
    return frozenset({Sequence(node)})


def loss(interp: Interpretation, node: ast.Call, options: dict[str, ast.expr], name: str) -> Values:
    batch_values = batch_values_of(interp, arguments_of(node))
    if not batch_values:
        return UNKNOWN
    if any(s.kind == "rows" for s in batch_values):  # and so have the predictions beside them
        batch_values = [s for s in batch_values if not is_open(interp, s)]
    reduction = options.get("reduction")
    kind = "mean"
    if reduction is not None:
        known = interp.constants.known(reduction) or frozenset()
        kinds = {"mean": "mean", "batchmean": "mean", "sum": "sum", "none": "rows"}
        kind = kinds.get(str(*known), "other") if len(known) == 1 else "other"
    legacy = {k for k in ("size_average", "reduce") if k in options}
    if legacy:
        kind = _legacy_reduction(options)
    if kind == "mean" and (_normalises(options, name) or _weighs_by_the_share(interp, options)):
        kind = "other"
    found: set[Value] = set()
    for batch_value in batch_values:
        if batch_value.kind == "other":
            found.add(tensors.other(batch_value, node))
        elif kind == "rows":
            found.add(
                FromBatch(batch_value.kind if batch_value.kind != "batch" else "rows", batch_value.loader)
            )
        else:
            found.add(FromBatch(kind, batch_value.loader, frozenset({node})))
    return frozenset(found)


def _weighs_by_the_share(interp: Interpretation, options: dict[str, ast.expr]) -> bool:
    """`pos_weight=negatives / positives`, counted in this batch: every rank weighs by its own share."""
    given = [v for value in options.values() for v in interp.of(value)]
    return any(isinstance(v, FromBatch) and v.kind in tensors.SCALARS for v in given)


def _legacy_reduction(options: dict[str, ast.expr]) -> str:
    def is_false(node: ast.expr | None) -> bool:
        return isinstance(node, ast.Constant) and node.value is False

    if is_false(options.get("reduce")):
        return "rows"
    return "sum" if is_false(options.get("size_average")) else "mean"


def _normalises(options: dict[str, ast.expr], name: str) -> bool:
    for key in api.NORMALISING_ARGUMENTS & set(options):
        value = options[key]
        unset = isinstance(value, ast.Constant) and value.value is None
        if not unset and not (key == "weight" and name in api.PLAIN_WEIGHT_LOSSES):
            return True
    return False
