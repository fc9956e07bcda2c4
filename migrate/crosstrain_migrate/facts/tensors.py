"""How a value depends on a rank's share of the batch: the algebra of `FromBatch.kind`.

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
from .values import FromBatch

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


def other(batch_value: FromBatch, node: ast.AST) -> FromBatch:
    """Some function of the share, computed at `node`. What rows went through before does not matter any more."""
    kept = batch_value.origins if batch_value.kind in {"mean", "sum", "count"} else frozenset()
    return replace(batch_value, kind="other", origins=kept | {node})


def collapsed(batch_value: FromBatch, kind: str, node: ast.AST) -> FromBatch:
    return replace(batch_value, kind=kind, origins=batch_value.origins | {node})


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
    batch_value: FromBatch,
    node: ast.AST,
    rest: list[ast.expr],
    keywords: dict[str, ast.expr],
    counts: frozenset[ast.expr] = frozenset(),
    others: tuple[FromBatch, ...] = (),
) -> FromBatch | None:
    """What `value.name(*rest, **keywords)` is; None when it no longer depends on the share.

    counts: the arguments known to be the number of rows. others: values from batches among the arguments.
    """
    if name in {"size", "shape"}:
        return _size(batch_value, node, rest)
    if name in {"numel", "nelement", "__len__"}:
        if batch_value.kind == "other":
            return other(batch_value, node)
        return collapsed(batch_value, "count", node) if batch_value.kind in PER_SAMPLE else None
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
    if batch_value.kind in SCALARS:
        return _scalar(name, batch_value, node)
    if batch_value.kind == "shape":
        return None
    return _per_sample(name, batch_value, node, rest, keywords, counts, others)


def _size(batch_value: FromBatch, node: ast.AST, rest: list[ast.expr]) -> FromBatch | None:
    if batch_value.kind in {"mixed", "other"} and rest:
        return other(batch_value, node) if literal_int(rest[0]) in {0, None} else None
    if batch_value.kind not in {"rows", "batch", "mixed", "other"}:
        return None
    if not rest:
        return replace(batch_value, kind="shape", origins=frozenset({node}))
    return collapsed(batch_value, "count", node) if literal_int(rest[0]) in {0, None} else None


def _scalar(name: str, batch_value: FromBatch, node: ast.AST) -> FromBatch:
    host = batch_value.host or name in api.HOST_METHODS
    if name in api.LINEAR:
        return replace(batch_value, host=host)
    if name in {"sum", "mean"} and batch_value.kind in {"mean", "sum"}:  # of a 0-d tensor: itself
        return batch_value
    return replace(batch_value, kind="other", host=host)


def _per_sample(
    name: str,
    batch_value: FromBatch,
    node: ast.AST,
    rest: list[ast.expr],
    keywords: dict[str, ast.expr],
    counts: frozenset[ast.expr],
    others: tuple[FromBatch, ...],
) -> FromBatch:
    if (
        name == "index_select"
        and batch_value.kind == "rows"
        and others
        and all(o.kind == "order" for o in others)
    ):
        return batch_value
    if batch_value.kind == "order":
        return batch_value if name in _KEEPS_ORDER else other(batch_value, node)
    if any(o.kind in {"other", "order"} for o in others):
        return other(batch_value, node)
    if name in {"matmul", "mm", "__matmul__"} and any(o.kind == "mixed" for o in others):
        return other(batch_value, node)
    if batch_value.kind == "rows" and any(o.kind == "mixed" for o in others):
        batch_value = replace(batch_value, kind="mixed")
    if name in api.ROW_WISE or name in api.SHAPE_AS or name in {"matmul", "mm", "__matmul__", "data", "grad"}:
        return replace(batch_value, host=batch_value.host or name in api.HOST_METHODS)
    if name in api.REDUCTIONS:
        return _reduction(name, batch_value, node, rest, keywords)
    if name in api.ALONG:
        return _along(name, batch_value, node, rest, keywords)
    return _reshape(name, batch_value, node, rest, keywords, counts)


def _reduction(
    name: str, batch_value: FromBatch, node: ast.AST, rest: list[ast.expr], keywords: dict[str, ast.expr]
) -> FromBatch:
    position = 1 if name == "norm" else 0
    dims = dims_of(rest, keywords, position)
    if dims is not None and batch_value.kind in {"rows", "batch"} and _spares_rows(dims):
        return replace(batch_value, kind="batch" if api.REDUCTIONS[name] else "rows")
    if dims is not None and not _spares_rows(dims) and name in {"max", "min"} and rest and dims == [None]:
        return batch_value  # torch.max(a, b): element by element
    if dims is not None and batch_value.kind in {"mixed", "layers"}:
        return other(batch_value, node)
    if name in {"sum", "mean"}:
        return collapsed(batch_value, name, node)
    if name == "count_nonzero":
        return collapsed(batch_value, "sum", node)
    return other(batch_value, node)


def _along(
    name: str, batch_value: FromBatch, node: ast.AST, rest: list[ast.expr], keywords: dict[str, ast.expr]
) -> FromBatch:
    position = 1 if name in {"topk", "kthvalue", "chunk", "split", "normalize", "roll"} else 0
    dims = dims_of(rest, keywords, position)
    if name in {"flip", "roll"} and batch_value.kind == "rows" and dims is not None and None not in dims:
        return batch_value  # the same rows, at most in another order
    if dims is None and name in api.FIRST_DIM_BY_DEFAULT | api.LAST_DIM_BY_DEFAULT:
        return other(batch_value, node)  # the last dimension of a loss per sample is its first
    if dims is None or _spares_rows(dims):
        return (
            replace(batch_value, kind="batch")
            if api.ALONG[name] and batch_value.kind == "rows"
            else batch_value
        )
    return other(batch_value, node)


def _reshape(
    name: str,
    batch_value: FromBatch,
    node: ast.AST,
    rest: list[ast.expr],
    keywords: dict[str, ast.expr],
    counts: frozenset[ast.expr],
) -> FromBatch:
    mixed = replace(batch_value, kind="mixed")
    first = rest[0] if rest else None
    if isinstance(first, ast.Tuple | ast.List) and first.elts:
        first = first.elts[0]
    if name in {"view", "reshape", "expand", "repeat", "unflatten"}:
        keeps = first is not None and (first in counts or literal_int(first) == -1)
        return batch_value if keeps and batch_value.kind == "rows" else mixed
    if name == "flatten":
        return batch_value
    if name in {"squeeze", "unsqueeze"}:
        dims = dims_of(rest, keywords)
        if batch_value.kind == "layers" and name == "squeeze" and dims == [0]:
            return replace(batch_value, kind="rows")
        return batch_value if dims is None or _spares_rows(dims) else mixed
    if name in {"transpose", "swapaxes", "swapdims"}:
        dims = [literal_int(a) for a in rest[:2]]
        if batch_value.kind == "layers" and sorted(d for d in dims if d is not None) == [0, 1]:
            return replace(batch_value, kind="rows")
        return batch_value if len(dims) == 2 and all(d is not None and d != 0 for d in dims) else mixed
    if name == "permute":
        return batch_value if literal_int(first) == 0 else mixed
    if name in {"t", "T", "mT", "H", "movedim"}:
        return batch_value if name == "mT" else mixed
    return other(batch_value, node)


def subscript(
    batch_value: FromBatch, index: ast.expr, node: ast.AST, row_index: bool, permutes: bool = False
) -> FromBatch | None:
    """`value[index]`; `row_index`: the index itself is computed from rows (a mask); `permutes`: it is an order of them."""
    if permutes and batch_value.kind == "rows":
        return batch_value
    if batch_value.kind == "batch":
        return replace(batch_value, kind="rows")
    if batch_value.kind == "rows" and isinstance(index, ast.Constant) and isinstance(index.value, str):
        return batch_value  # no tensor takes a string: this is a batch whose parts have names
    if batch_value.kind == "shape":
        position = literal_int(index)
        return (
            replace(batch_value, kind="count", origins=frozenset({node})) if position in {0, None} else None
        )
    if batch_value.kind == "layers" and literal_int(index) is not None:
        return replace(batch_value, kind="rows")
    if batch_value.kind in SCALARS:
        return batch_value
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    if isinstance(first, ast.Slice) and first.lower is first.upper is first.step is None and not row_index:
        return batch_value
    return other(batch_value, node)


def binary(
    op: ast.operator | ast.cmpop, left: FromBatch | None, right: FromBatch | None, node: ast.AST
) -> FromBatch | None:
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


def is_factor(number: FromBatch, loss: FromBatch) -> bool:
    """A Python number beside a loss: it is made global where it is read, so here it is the same on every rank."""
    return (
        number.host and number.kind in SCALARS and not loss.host and loss.kind in {"mean", "sum", "mixture"}
    )


def _with_constant(
    op: ast.operator | ast.cmpop, left: FromBatch | None, right: FromBatch | None, node: ast.AST
) -> FromBatch:
    batch_value = left or right
    assert batch_value is not None
    if batch_value.kind == "order":
        return other(batch_value, node)
    if batch_value.kind in {"rows", "mixed", "batch", "layers"}:
        return replace(batch_value, kind="rows") if batch_value.kind == "batch" else batch_value
    if isinstance(op, ast.Mult):
        return batch_value
    if isinstance(op, ast.Div) and left is not None:
        return batch_value
    if isinstance(op, ast.Add | ast.Sub) and batch_value.kind in {"mean", "mixture"}:
        return batch_value
    if isinstance(op, ast.Add | ast.Sub) and batch_value.kind == "sum":
        return replace(batch_value, kind="mixture")
    return replace(batch_value, kind="other")
