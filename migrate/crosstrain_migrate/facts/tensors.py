"""How a value depends on a rank's share of the batch: the algebra of `Shard.kind`.

| kind | meaning | made global by |
|---|---|---|
| batch | a container (tuple, dict) of rows | gather |
| rows | dim 0 runs over the samples (k consecutive rows a sample) | gather |
| layers | dim 1 runs over the samples (recurrent hidden states) | - |
| mixed | every element belongs to one sample, in another order | - |
| order | a permutation of the share's positions: rows indexed by it stay rows | - |
| mean, sum | over the samples | reduce |
| mixture | a sum over rows and something else added | - |
| count | how many samples | gather, then count |
| shape | a size whose first entry is a count | - |
| other | any other function of the share | gather its arguments |
"""

from __future__ import annotations

import ast
from dataclasses import replace

from . import torch_api as api
from .values import Shard

SCALARS = frozenset({"mean", "sum", "mixture", "count", "other"})
PER_SAMPLE = frozenset({"batch", "rows", "mixed", "layers", "order"})
PERMUTATIONS = frozenset({"torch.randperm", "numpy.random.permutation"})
WEIGHTED_DRAWS = frozenset({"torch.multinomial"})  # on the device of their weights
# What a permutation goes through and stays one.
_KEEPS_ORDER = frozenset(
    {"to", "cuda", "cpu", "type", "type_as", "int", "long", "clone", "detach", "contiguous", "tolist"}
)


def literal_int(node: ast.AST | None) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal_int(node.operand)
        return None if inner is None else -inner
    return None


def other(shard: Shard, node: ast.AST) -> Shard:
    """Some function of the share, computed at `node`. What rows went through before does not matter any more."""
    kept = shard.origins if shard.kind in {"mean", "sum", "count"} else frozenset()
    return replace(shard, kind="other", origins=kept | {node})


def collapsed(shard: Shard, kind: str, node: ast.AST) -> Shard:
    return replace(shard, kind=kind, origins=shard.origins | {node})


def dims_of(
    rest: list[ast.expr], keywords: dict[str, ast.expr], position: int = 0
) -> list[int | None] | None:
    """The dimensions a call names: None when it names none, [None] where one is not a literal."""
    node = keywords.get("dim", keywords.get("dims", keywords.get("axis")))
    if node is None and len(rest) > position:
        node = rest[position]
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return None
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return [literal_int(part) for part in parts]


def _spares_rows(dims: list[int | None] | None) -> bool:
    return dims is not None and all(d is not None and d != 0 for d in dims)


def apply(
    name: str,
    shard: Shard,
    node: ast.AST,
    rest: list[ast.expr],
    keywords: dict[str, ast.expr],
    counts: frozenset[ast.expr] = frozenset(),
    others: tuple[Shard, ...] = (),
) -> Shard | None:
    """What `shard.name(*rest, **keywords)` is; None when it no longer depends on the share.

    counts: the arguments known to be the number of rows. others: shards among the arguments.
    """
    if name in {"size", "shape"}:
        return _size(shard, node, rest)
    if name in {"numel", "nelement", "__len__"}:
        if shard.kind == "other":
            return other(shard, node)
        return collapsed(shard, "count", node) if shard.kind in PER_SAMPLE else None
    if name in {
        "dim",
        "ndimension",
        "ndim",
        "dtype",
        "device",
        "is_cuda",
        "layout",
        "requires_grad",
        "names",
    }:
        return None
    if name in {"backward", "retain_grad", "register_hook", "stride", "data_ptr", "is_contiguous", "grad_fn"}:
        return None
    if shard.kind in SCALARS:
        return _scalar(name, shard, node)
    if shard.kind == "shape":
        return None
    return _per_sample(name, shard, node, rest, keywords, counts, others)


def _size(shard: Shard, node: ast.AST, rest: list[ast.expr]) -> Shard | None:
    if shard.kind in {"mixed", "other"} and rest:
        return other(shard, node) if literal_int(rest[0]) in {0, None} else None
    if shard.kind not in {"rows", "batch", "mixed", "other"}:
        return None
    if not rest:
        return replace(shard, kind="shape", origins=frozenset({node}))
    return collapsed(shard, "count", node) if literal_int(rest[0]) in {0, None} else None


def _scalar(name: str, shard: Shard, node: ast.AST) -> Shard:
    host = shard.host or name in api.HOST_METHODS
    if name in api.LINEAR:
        return replace(shard, host=host)
    if name in {"sum", "mean"} and shard.kind in {"mean", "sum"}:  # of a 0-d tensor: itself
        return shard
    return replace(shard, kind="other", host=host)


def _per_sample(
    name: str,
    shard: Shard,
    node: ast.AST,
    rest: list[ast.expr],
    keywords: dict[str, ast.expr],
    counts: frozenset[ast.expr],
    others: tuple[Shard, ...],
) -> Shard:
    if name == "index_select" and shard.kind == "rows" and others and all(o.kind == "order" for o in others):
        return shard
    if shard.kind == "order":
        return shard if name in _KEEPS_ORDER else other(shard, node)
    if any(o.kind in {"other", "order"} for o in others):
        return other(shard, node)
    if name in {"matmul", "mm", "__matmul__"} and any(o.kind == "mixed" for o in others):
        return other(shard, node)
    if shard.kind == "rows" and any(o.kind == "mixed" for o in others):
        shard = replace(shard, kind="mixed")
    if name in api.ROW_WISE or name in api.SHAPE_AS or name in {"matmul", "mm", "__matmul__", "data", "grad"}:
        return replace(shard, host=shard.host or name in api.HOST_METHODS)
    if name in api.REDUCTIONS:
        return _reduction(name, shard, node, rest, keywords)
    if name in api.ALONG:
        return _along(name, shard, node, rest, keywords)
    return _reshape(name, shard, node, rest, keywords, counts)


def _reduction(
    name: str, shard: Shard, node: ast.AST, rest: list[ast.expr], keywords: dict[str, ast.expr]
) -> Shard:
    position = 1 if name == "norm" else 0
    dims = dims_of(rest, keywords, position)
    if dims is not None and shard.kind in {"rows", "batch"} and _spares_rows(dims):
        return replace(shard, kind="batch" if api.REDUCTIONS[name] else "rows")
    if dims is not None and not _spares_rows(dims) and name in {"max", "min"} and rest and dims == [None]:
        return shard  # torch.max(a, b): element by element
    if dims is not None and shard.kind in {"mixed", "layers"}:
        return other(shard, node)
    if name in {"sum", "mean"}:
        return collapsed(shard, name, node)
    if name == "count_nonzero":
        return collapsed(shard, "sum", node)
    return other(shard, node)


def _along(
    name: str, shard: Shard, node: ast.AST, rest: list[ast.expr], keywords: dict[str, ast.expr]
) -> Shard:
    position = 1 if name in {"topk", "kthvalue", "chunk", "split", "normalize", "roll"} else 0
    dims = dims_of(rest, keywords, position)
    if name in {"flip", "roll"} and shard.kind == "rows" and dims is not None and None not in dims:
        return shard  # the same rows, at most in another order
    if dims is None and name in api.FIRST_DIM_BY_DEFAULT | api.LAST_DIM_BY_DEFAULT:
        return other(shard, node)  # the last dimension of a loss per sample is its first
    if dims is None or _spares_rows(dims):
        return replace(shard, kind="batch") if api.ALONG[name] and shard.kind == "rows" else shard
    return other(shard, node)


def _reshape(
    name: str,
    shard: Shard,
    node: ast.AST,
    rest: list[ast.expr],
    keywords: dict[str, ast.expr],
    counts: frozenset[ast.expr],
) -> Shard:
    mixed = replace(shard, kind="mixed")
    first = rest[0] if rest else None
    if isinstance(first, ast.Tuple | ast.List) and first.elts:
        first = first.elts[0]
    if name in {"view", "reshape", "expand", "repeat", "unflatten"}:
        keeps = first is not None and (first in counts or literal_int(first) == -1)
        return shard if keeps and shard.kind == "rows" else mixed
    if name == "flatten":
        return shard
    if name in {"squeeze", "unsqueeze"}:
        dims = dims_of(rest, keywords)
        if shard.kind == "layers" and name == "squeeze" and dims == [0]:
            return replace(shard, kind="rows")
        return shard if dims is None or _spares_rows(dims) else mixed
    if name in {"transpose", "swapaxes", "swapdims"}:
        dims = [literal_int(a) for a in rest[:2]]
        if shard.kind == "layers" and sorted(d for d in dims if d is not None) == [0, 1]:
            return replace(shard, kind="rows")
        return shard if len(dims) == 2 and all(d is not None and d != 0 for d in dims) else mixed
    if name == "permute":
        return shard if literal_int(first) == 0 else mixed
    if name in {"t", "T", "mT", "H", "movedim"}:
        return shard if name == "mT" else mixed
    return other(shard, node)


def subscript(
    shard: Shard, index: ast.expr, node: ast.AST, row_index: bool, permutes: bool = False
) -> Shard | None:
    """`shard[index]`; `row_index`: the index itself is computed from rows (a mask); `permutes`: it is an order of them."""
    if permutes and shard.kind == "rows":
        return shard
    if shard.kind == "batch":
        return replace(shard, kind="rows")
    if shard.kind == "rows" and isinstance(index, ast.Constant) and isinstance(index.value, str):
        return shard  # no tensor takes a string: this is a batch whose parts have names
    if shard.kind == "shape":
        position = literal_int(index)
        return replace(shard, kind="count", origins=frozenset({node})) if position in {0, None} else None
    if shard.kind == "layers" and literal_int(index) is not None:
        return replace(shard, kind="rows")
    if shard.kind in SCALARS:
        return shard
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    if isinstance(first, ast.Slice) and first.lower is first.upper is first.step is None and not row_index:
        return shard
    return other(shard, node)


def binary(
    op: ast.operator | ast.cmpop, left: Shard | None, right: Shard | None, node: ast.AST
) -> Shard | None:
    """`left op right`, either of which may not depend on the share (None)."""
    if left is None and right is None:
        return None
    if left is None or right is None:
        return _with_constant(op, left, right, node)
    if is_factor(right, left):
        return _with_constant(op, left, None, node)
    if is_factor(left, right):
        return _with_constant(op, None, right, node)
    origins = left.origins | right.origins
    host = left.host and right.host
    kinds = {left.kind, right.kind}
    base = replace(left, origins=origins, host=host)
    if isinstance(op, ast.MatMult):
        return other(base, node) if "mixed" in kinds or "other" in kinds else replace(base, kind="rows")
    if kinds <= {"rows", "batch"}:
        return replace(base, kind="rows")
    if kinds <= {"rows", "mixed", "batch", "layers"}:
        return replace(base, kind="mixed")
    if isinstance(op, ast.Add | ast.Sub) and len(kinds) == 1:
        return replace(base, kind=left.kind)
    if (
        isinstance(op, ast.Add | ast.Sub)
        and kinds & {"sum", "mixture"}
        and kinds <= {"sum", "mean", "mixture"}
    ):
        return replace(base, kind="mixture")
    if isinstance(op, ast.Mult) and kinds == {"mean", "count"}:
        return replace(base, kind="sum")
    if isinstance(op, ast.Div) and left.kind == "sum" and right.kind == "count":
        return replace(base, kind="mean")
    return replace(base, kind="other", origins=origins or frozenset({node}))


def is_factor(number: Shard, loss: Shard) -> bool:
    """A Python number beside a loss: it is made global where it is read, so here it is the same on every rank."""
    return (
        number.host and number.kind in SCALARS and not loss.host and loss.kind in {"mean", "sum", "mixture"}
    )


def _with_constant(
    op: ast.operator | ast.cmpop, left: Shard | None, right: Shard | None, node: ast.AST
) -> Shard:
    shard = left or right
    assert shard is not None
    if shard.kind == "order":
        return other(shard, node)
    if shard.kind in {"rows", "mixed", "batch", "layers"}:
        return replace(shard, kind="rows") if shard.kind == "batch" else shard
    if isinstance(op, ast.Mult):
        return shard
    if isinstance(op, ast.Div) and left is not None:
        return shard
    if isinstance(op, ast.Add | ast.Sub) and shard.kind in {"mean", "mixture"}:
        return shard
    if isinstance(op, ast.Add | ast.Sub) and shard.kind == "sum":
        return replace(shard, kind="mixture")
    return replace(shard, kind="other")
