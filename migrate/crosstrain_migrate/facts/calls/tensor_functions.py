"""Calls on tensors: `torch.f(x)`, `x.f()`, and what is called with one and not known."""

from __future__ import annotations

import ast
from dataclasses import replace

from crosstrain_migrate.facts import tensors
from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.argument_values import batch_values_of
from crosstrain_migrate.facts.arguments import arguments_of, given, keywords_of
from crosstrain_migrate.facts.evidence import COMPARES, beside, is_open
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.memory import ANY
from crosstrain_migrate.facts.values import NOTHING, UNKNOWN, FromBatch, Sequence, Value, Values

_TO_NUMBER = frozenset({"builtins.float", "builtins.int", "builtins.bool"})


def of_unknown(interp: Interpretation, node: ast.Call) -> Values:
    """A call of something we know nothing about: whatever it does to its rows, it is some function of them."""
    batch_values = [
        s for s in batch_values_of(interp, arguments_of(node)) if s.kind not in {"count", "shape"}
    ]
    if not batch_values:
        return UNKNOWN
    return frozenset(tensors.other(batch_value, node) for batch_value in batch_values)


def _apply(
    interp: Interpretation,
    name: str,
    node: ast.Call,
    batch_values: list[FromBatch],
    rest: list[ast.expr],
    keywords: dict[str, ast.expr],
) -> Values:
    counts = frozenset(a for a in _flat(rest) if _is_count(interp, a))
    found: set[Value] = set()
    loaders = {s.loader for s in batch_values}
    for loader in loaders:
        mine = [s for s in batch_values if s.loader == loader]
        result = tensors.apply(name, mine[0], node, rest, keywords, counts, tuple(mine[1:]))
        if result is not None and len(mine) > 1:
            result = FromBatch(result.kind, loader, result.origins | _origins(mine), result.host)
        found |= {result} if result is not None else UNKNOWN
    return frozenset(found)


def _origins(batch_values: list[FromBatch]) -> frozenset[ast.AST]:
    return frozenset(o for s in batch_values for o in s.origins)


def _flat(nodes: list[ast.expr]) -> list[ast.expr]:
    found: list[ast.expr] = []
    for node in nodes:
        found.extend([node, *node.elts] if isinstance(node, ast.Tuple | ast.List) else [node])
    return found


def _is_count(interp: Interpretation, node: ast.expr) -> bool:
    """`n` of `x.view(n, -1)`, or the whole size: `y.view(x.shape)`."""
    return any(isinstance(v, FromBatch) and v.kind in {"count", "shape"} for v in interp.of(node))


def _join(interp: Interpretation, name: str, node: ast.Call) -> Values:
    batch_values = [s for s in batch_values_of(interp, node.args[:1]) if s.kind not in {"count", "shape"}]
    if not batch_values:
        return UNKNOWN
    dim = keywords_of(node).get(
        "dim", keywords_of(node).get("axis", node.args[1] if len(node.args) > 1 else None)
    )
    position = tensors.literal_int(dim)
    keeps = position is not None and position != 0 and name in {"cat", "concat", "concatenate", "stack"}
    found: set[Value] = set()
    for batch_value in batch_values:
        if batch_value.kind in tensors.SCALARS:
            found.add(batch_value if batch_value.kind == "mean" else tensors.other(batch_value, node))
        elif batch_value.host:
            found.add(tensors.other(batch_value, node))
        else:
            kind = batch_value.kind if keeps and batch_value.kind != "batch" else "mixed"
            found.add(
                FromBatch(
                    "rows" if kind == "batch" else kind,
                    batch_value.loader,
                    batch_value.origins,
                    batch_value.host,
                )
            )
    return frozenset(found)


def call_tensor_method(interp: Interpretation, owner: FromBatch, name: str, node: ast.Call) -> Values:
    if any(not interp.of(a) for a in arguments_of(node)):
        return NOTHING
    if owner.kind == "rows" and name == "items":  # no tensor has them: these are parts that have names
        named = call_tensor_method(interp, replace(owner, kind="batch"), name, node)
        return frozenset(value for value in named if isinstance(value, Sequence))
    if owner.kind == "batch" and name in {"items", "values", "keys"}:
        if name == "keys":
            return UNKNOWN
        pair = Sequence(node)
        interp.store(node, 0, UNKNOWN)
        interp.store(node, 1, {FromBatch("rows", owner.loader)})
        if name == "values":
            return frozenset({owner})
        interp.store(node.func, ANY, {pair})
        return frozenset({Sequence(node.func), owner})
    if owner.kind == "batch" and name in {"pop", "get", "__getitem__"}:
        return frozenset({FromBatch("rows", owner.loader)})
    others = [s for s in batch_values_of(interp, arguments_of(node)) if s.kind not in {"count", "shape"}]
    if name in COMPARES and len(others) == 1:
        left, right = frozenset({owner}), frozenset(others)
        if any(is_open(interp, v) for v in left | right):
            meant = beside(interp, left, right)
            return meant if meant != left else beside(interp, right, left)
    if name in api.SHAPE_AS:
        others = []
    return _apply(interp, name, node, [owner, *others], list(node.args), keywords_of(node))


def _of_numbers(interp: Interpretation, name: str, data: ast.expr, batch_values: list[FromBatch]) -> Values:
    """A tensor of means, sums and counts: `tensor(n)`, `FloatTensor([n])`, and not `FloatTensor(n)`, which has n rows."""
    direct = frozenset(v for v in interp.of(data) if isinstance(v, FromBatch))
    if not batch_values or not all(s.kind in tensors.SCALARS for s in batch_values):
        return NOTHING
    if direct:
        return direct if name in api.OF_NUMBERS else NOTHING
    return frozenset(replace(s, kind="other") for s in batch_values)


def _gradient(interp: Interpretation, node: ast.Call) -> Values:
    """`torch.autograd.grad(outputs, inputs)`: by rows, one for each; by parameters, some function of the whole share."""
    by = given(node, "inputs", 1)
    if by is not None and any(s.kind in tensors.PER_SAMPLE for s in batch_values_of(interp, [by])):
        return frozenset(FromBatch("batch", s.loader) for s in batch_values_of(interp, arguments_of(node)))
    of = batch_values_of(interp, node.args[:1] or arguments_of(node))
    return frozenset(FromBatch("other", s.loader, frozenset({node})) for s in of)


def call_tensor_function(interp: Interpretation, path: str, name: str, node: ast.Call) -> Values:
    """torch.f(x, ...), F.f(x, ...), numpy.f(x, ...): the method f of its first row-like argument."""
    if path.startswith(("torch.nn.utils.clip_grad", "torch.nn.utils.rnn.")):
        return UNKNOWN if path.startswith("torch.nn.utils.clip_grad") else of_unknown(interp, node)
    if name in api.JOINS:
        return _join(interp, name, node)
    if name in {"einsum", "cdist"}:
        return of_unknown(interp, node)
    if name == "grad" and path.startswith("torch.autograd"):
        return _gradient(interp, node) or UNKNOWN
    arguments = arguments_of(node)
    pending = [a for a in arguments if not interp.of(a)]
    if pending:
        return NOTHING
    batch_values = batch_values_of(interp, arguments)
    if name in api.FROM_DATA and node.args and interp.of(node.args[0]):
        given = [
            v for v in interp.of(node.args[0]) if isinstance(v, FromBatch) and v.kind in {"rows", "order"}
        ]
        if given:
            return frozenset(replace(s, host=False) for s in given)
        numbers = _of_numbers(interp, name, node.args[0], batch_values)
        if numbers:
            return numbers
    if path in tensors.PERMUTATIONS:
        counts = [s for s in batch_values if s.kind == "count"]
        return frozenset(FromBatch("order", s.loader) for s in counts) or UNKNOWN
    if path in tensors.WEIGHTED_DRAWS and all(s.kind == "count" for s in batch_values):
        return (
            frozenset(FromBatch("rows", s.loader) for s in batch_values) or UNKNOWN
        )  # so many draws for each row
    if name in api.FACTORIES or path.startswith("numpy.random."):
        return frozenset(
            FromBatch("rows", s.loader) for s in batch_values if s.kind in {"count", "shape"}
        ) or (frozenset(tensors.other(s, node) for s in batch_values) or UNKNOWN)
    batch_values = [s for s in batch_values if s.kind not in {"count", "shape"}]
    if not batch_values:
        return UNKNOWN
    ranked = sorted(batch_values, key=lambda s: s.kind in tensors.SCALARS)
    first = ranked[0]
    holder = next(i for i, a in enumerate(arguments) if first in batch_values_of(interp, [a]))
    if len(node.args) > 1 and name == "where":
        holder = 0
    rest = node.args[1:] if holder == 0 else node.args[holder + 1 :]
    return _apply(interp, "item" if path in _TO_NUMBER else name, node, ranked, rest, keywords_of(node))
