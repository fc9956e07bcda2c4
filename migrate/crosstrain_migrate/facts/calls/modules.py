"""Calls of layers, models and losses: rows in, rows or their mean or sum out."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import containers, tensors
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.argument_values import batch_values_of
from crosstrain_migrate.facts.arguments import arguments_of, keywords_of
from crosstrain_migrate.facts.evidence import is_of_unknown_function
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.values import UNKNOWN, External, FromBatch, Sequence, Values

from .tensor_functions import of_unknown


def call_external(interp: Interpretation, function: External, node: ast.Call) -> Values:
    """What an object of a library's class returns when it is called."""
    if api.is_loss_class(function.path):
        constructor = function.site
        assert isinstance(constructor, ast.Call)
        if (interp.tree, (function, "reduction")) in interp.heap:
            return of_unknown(interp, node)  # `criterion.reduction = ...` later on
        return loss(interp, node, keywords_of(constructor), api.last(function.path))
    if function.path == "collections.namedtuple":
        return containers.record(interp, node, _field_names(function.site))
    if function.path in api.RECURRENT:
        return _recurrent(interp, function, node)
    return call_module(interp, node) if interp.is_module(function) else of_unknown(interp, node)


def _field_names(site: ast.AST) -> list[str]:
    fields = site.args[1] if isinstance(site, ast.Call) and len(site.args) > 1 else None
    if isinstance(fields, ast.Constant) and isinstance(fields.value, str):
        return fields.value.replace(",", " ").split()
    elements = fields.elts if isinstance(fields, ast.Tuple | ast.List) else []
    return [str(e.value) for e in elements if isinstance(e, ast.Constant)]


def call_module(interp: Interpretation, node: ast.Call) -> Values:
    """A layer or model from a library treats every sample on its own: rows in, rows out."""
    given = batch_values_of(interp, arguments_of(node))
    batch_values = [v for v in given if v.kind in tensors.PER_SAMPLE | {"other"}]
    if not batch_values:
        return UNKNOWN
    kinds = {v.kind for v in batch_values}
    first = next(k for k in ("other", "order", "mixed", "layers", "rows", "batch") if k in kinds)
    kind = {"batch": "rows", "order": "mixed"}.get(first, first)
    return frozenset(FromBatch(kind, v.loader, v.origins) for v in batch_values)


def _recurrent(interp: Interpretation, function: External, node: ast.Call) -> Values:
    """`output, hidden = rnn(x)`, where `hidden` may be a pair of states."""
    assert isinstance(function.site, ast.Call)
    batch_first = _says(keywords_of(function.site), "batch_first", True)
    batch_values = batch_values_of(interp, node.args[:1])
    for batch_value in batch_values:
        keeps = batch_value.kind == ("rows" if batch_first else "mixed")
        output = FromBatch(batch_value.kind if keeps else "mixed", batch_value.loader)
        hidden = FromBatch("layers", batch_value.loader)
        interp.store(node, 0, {output})
        interp.store(node, 1, {Sequence(node.func), hidden})
        interp.store(node.func, ANY, {hidden})
    return frozenset({Sequence(node)}) if batch_values else UNKNOWN


def loss(interp: Interpretation, node: ast.Call, options: dict[str, ast.expr], name: str) -> Values:
    """What a loss of torch's returns, called at `node`; `options`: the keywords that choose its reduction."""
    batch_values = batch_values_of(interp, arguments_of(node))
    if any(v.kind == "rows" for v in batch_values):  # and so have the predictions beside them
        batch_values = [v for v in batch_values if not is_of_unknown_function(interp, v)]
    kind = _reduction(interp, options)
    if kind == "mean" and (_normalises(options, name) or _weighs_by_the_share(interp, options)):
        kind = "other"

    def reduced(value: FromBatch) -> FromBatch:
        if value.kind == "other":
            return tensors.other(value, node)
        if kind == "rows":
            return FromBatch("rows" if value.kind == "batch" else value.kind, value.loader)
        return FromBatch(kind, value.loader, frozenset({node}))

    return frozenset(map(reduced, batch_values)) or UNKNOWN


def _reduction(interp: Interpretation, options: dict[str, ast.expr]) -> str:
    """What becomes of the rows: their mean or sum, rows again, or something that only the running script knows."""
    if options.keys() & {"size_average", "reduce"}:
        if _says(options, "reduce", False):
            return "rows"
        return "sum" if _says(options, "size_average", False) else "mean"
    if "reduction" not in options:
        return "mean"
    known = interp.constants.known(options["reduction"]) or frozenset()
    kinds = {"mean": "mean", "batchmean": "mean", "sum": "sum", "none": "rows"}
    return kinds.get(str(*known), "other") if len(known) == 1 else "other"


def _says(options: dict[str, ast.expr], name: str, value: bool | None) -> bool:
    """Whether an option is given this constant."""
    given = options.get(name)
    return isinstance(given, ast.Constant) and given.value is value


def _weighs_by_the_share(interp: Interpretation, options: dict[str, ast.expr]) -> bool:
    """`pos_weight=negatives / positives`, counted in this batch: every rank weighs by its own share."""
    given = [v for value in options.values() for v in interp.of(value)]
    return any(isinstance(v, FromBatch) and v.kind in tensors.SCALARS for v in given)


def _normalises(options: dict[str, ast.expr], name: str) -> bool:
    """Whether the mean divides by something else than the number of rows."""
    keys = {key for key in api.NORMALISING_ARGUMENTS & options.keys() if not _says(options, key, None)}
    return bool(keys - {"weight"} if name in api.PLAIN_WEIGHT_LOSSES else keys)
