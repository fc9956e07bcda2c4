"""Calls on tensors: `torch.f(x)`, `x.f()`, and calls of unknown functions with a tensor among the arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace

from crosstrain_migrate.facts import tensors
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.argument_values import batch_values_of
from crosstrain_migrate.facts.arguments import arguments_of, given, keywords_of
from crosstrain_migrate.facts.evidence import COMPARES, is_of_unknown_function, with_rows_of
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.values import NOTHING, UNKNOWN, FromBatch, Sequence, Value, Values

_TO_NUMBER = frozenset({"builtins.float", "builtins.int", "builtins.bool"})


def of_unknown(interp: Interpretation, node: ast.Call) -> Values:
    """What an unknown function returns: whatever it does with rows, the result is some function of them."""
    shares = _without_sizes(batch_values_of(interp, arguments_of(node)))
    return frozenset(tensors.other(share, node) for share in shares) or UNKNOWN


def _without_sizes(batch_values: Iterable[FromBatch]) -> list[FromBatch]:
    return [v for v in batch_values if v.kind not in tensors.SIZES]


def _apply(
    interp: Interpretation, name: str, node: ast.Call, batch_values: list[FromBatch], rest: list[ast.expr]
) -> Values:
    parts = [part for a in rest for part in (a, *(a.elts if isinstance(a, ast.Tuple | ast.List) else ()))]
    # `n` of `x.view(n, -1)`, or the whole size: `y.view(x.shape)`.
    counts = frozenset(
        part
        for part in parts
        if any(isinstance(v, FromBatch) and v.kind in tensors.SIZES for v in interp.of(part))
    )
    found: set[Value] = set()
    for loader in {v.loader for v in batch_values}:
        first, *others = (v for v in batch_values if v.loader == loader)
        operation = tensors.Operation(name, node, rest, keywords_of(node), counts, tuple(others))
        result = operation.on(first)
        if result is not None and others:
            origins = result.origins.union(first.origins, *(v.origins for v in others))
            result = FromBatch(result.kind, loader, origins, result.host)
        found |= {result} if result is not None else UNKNOWN
    return frozenset(found)


def _join(interp: Interpretation, name: str, node: ast.Call) -> Values:
    """`torch.cat(parts, dim=1)` keeps the rows apart; along the first dimension, it mixes them."""
    keywords = keywords_of(node)
    dim = keywords.get("dim", keywords.get("axis", node.args[1] if len(node.args) > 1 else None))
    keeps = tensors.literal_int(dim) not in {None, 0} and name in {"cat", "concat", "concatenate", "stack"}

    def joined(part: FromBatch) -> FromBatch:
        if part.kind == "mean":
            return part
        if part.kind in tensors.SCALARS or part.host:
            return tensors.other(part, node)
        return part if keeps and part.kind != "batch" else replace(part, kind="mixed")

    parts = _without_sizes(batch_values_of(interp, node.args[:1]))
    return frozenset(joined(part) for part in parts) or UNKNOWN


def call_tensor_method(interp: Interpretation, owner: FromBatch, name: str, node: ast.Call) -> Values:
    if any(not interp.of(a) for a in arguments_of(node)):
        return NOTHING
    if owner.kind == "rows" and name == "items":  # no tensor has them: these are parts that have names
        named = call_tensor_method(interp, replace(owner, kind="batch"), name, node)
        return frozenset(value for value in named if isinstance(value, Sequence))
    if owner.kind == "batch" and name in _OF_DICTS:
        return _call_dict_method(interp, owner, name, node)
    others = _without_sizes(batch_values_of(interp, arguments_of(node)))
    if name in COMPARES and len(others) == 1:
        left, right = frozenset({owner}), frozenset(others)
        if any(is_of_unknown_function(interp, v) for v in left | right):
            meant = with_rows_of(interp, left, right)
            return meant if meant != left else with_rows_of(interp, right, left)
    if name in api.SHAPE_AS:
        others = []
    return _apply(interp, name, node, [owner, *others], list(node.args))


_OF_DICTS = frozenset({"items", "values", "keys", "pop", "get", "__getitem__"})


def _call_dict_method(interp: Interpretation, batch: FromBatch, name: str, node: ast.Call) -> Values:
    if name in {"keys", "values"}:
        return UNKNOWN if name == "keys" else frozenset({batch})
    rows = FromBatch("rows", batch.loader)
    if name != "items":
        return frozenset({rows})
    interp.store(node, 0, UNKNOWN)
    interp.store(node, 1, {rows})
    interp.store(node.func, ANY, {Sequence(node)})
    return frozenset({Sequence(node.func), batch})


def _of_data(interp: Interpretation, name: str, data: ast.expr, batch_values: list[FromBatch]) -> Values:
    """What `tensor(x)` or `FloatTensor(x)` makes of rows, or of means, sums and counts; nothing where it makes a tensor
    of its own, as `FloatTensor(n)` makes n rows."""
    direct = [v for v in interp.of(data) if isinstance(v, FromBatch)]
    rows = [v for v in direct if v.kind in {"rows", "order"}]
    if rows:
        return frozenset(replace(v, host=False) for v in rows)
    if not all(v.kind in tensors.SCALARS for v in batch_values):
        return NOTHING
    if direct:
        return frozenset(direct) if name in api.OF_NUMBERS else NOTHING
    return frozenset(replace(v, kind="other") for v in batch_values)


def _gradient(interp: Interpretation, node: ast.Call) -> Values:
    """`torch.autograd.grad(outputs, inputs)`: by rows, one for each; by parameters, some function of the whole share."""
    by = given(node, "inputs", 1)
    if by is not None and any(v.kind in tensors.PER_SAMPLE for v in batch_values_of(interp, [by])):
        return frozenset(FromBatch("batch", v.loader) for v in batch_values_of(interp, arguments_of(node)))
    of = batch_values_of(interp, node.args[:1] or arguments_of(node))
    return frozenset(FromBatch("other", v.loader, frozenset({node})) for v in of)


def _draw(path: str, name: str, node: ast.Call, batch_values: list[FromBatch]) -> Values | None:
    """What a factory or a random draw makes of the sizes that it is given; None for any other function."""

    def of_sizes(kind: str, sizes: frozenset[str] = tensors.SIZES) -> Values:
        return frozenset(FromBatch(kind, v.loader) for v in batch_values if v.kind in sizes)

    if path in tensors.PERMUTATIONS:
        return of_sizes("order", frozenset({"count"})) or UNKNOWN
    if path in tensors.WEIGHTED_DRAWS and all(v.kind == "count" for v in batch_values):
        return of_sizes("rows") or UNKNOWN  # so many draws for each row
    if name in api.FACTORIES or path.startswith("numpy.random."):
        return of_sizes("rows") or frozenset(tensors.other(v, node) for v in batch_values) or UNKNOWN
    return None


def call_tensor_function(interp: Interpretation, path: str, name: str, node: ast.Call) -> Values:
    """torch.f(x, ...), F.f(x, ...), numpy.f(x, ...): the method f of its first row-like argument."""
    if path.startswith("torch.nn.utils.clip_grad"):
        return UNKNOWN
    if name in api.JOINS:
        return _join(interp, name, node)
    if name in {"einsum", "cdist"} or path.startswith("torch.nn.utils.rnn."):
        return of_unknown(interp, node)
    if name == "grad" and path.startswith("torch.autograd"):
        return _gradient(interp, node) or UNKNOWN
    arguments = arguments_of(node)
    if any(not interp.of(a) for a in arguments):
        return NOTHING
    batch_values = batch_values_of(interp, arguments)
    if name in api.FROM_DATA and node.args:
        made = _of_data(interp, name, node.args[0], batch_values)
        if made:
            return made
    drawn = _draw(path, name, node, batch_values)
    if drawn is not None:
        return drawn
    ranked = sorted(_without_sizes(batch_values), key=lambda v: v.kind in tensors.SCALARS)
    if not ranked:
        return UNKNOWN
    holder = next(i for i, a in enumerate(arguments) if ranked[0] in batch_values_of(interp, [a]))
    if len(node.args) > 1 and name == "where":
        holder = 0
    rest = node.args[holder + 1 :]
    return _apply(interp, "item" if path in _TO_NUMBER else name, node, ranked, rest)
