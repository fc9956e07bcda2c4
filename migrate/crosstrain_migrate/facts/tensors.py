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
from dataclasses import dataclass, field, replace

from . import torch_api as api
from .torch_api import words
from .values import FromBatch

Dims = list[int | None] | None  # the dimensions that a call names; None in the list: not a literal

SCALARS = words("mean sum mixture count other")
PER_SAMPLE = words("batch rows mixed layers order")
SIZES = words("count shape")
PERMUTATIONS = words("torch.randperm numpy.random.permutation")
WEIGHTED_DRAWS = words("torch.multinomial")  # on the device of their weights
# What leaves a permutation a permutation.
_KEEPS_ORDER = words("to cuda cpu type type_as int long clone detach contiguous tolist")
_MATMUL = words("matmul mm __matmul__")
_KEEPS_ROWS = api.ROW_WISE | api.SHAPE_AS | _MATMUL | {"data", "grad"}
# What does not depend on the numbers in a tensor.
_ABOUT_THE_TENSOR = words("""
    backward data_ptr device dim dtype grad_fn is_contiguous is_cuda layout names ndim ndimension register_hook
    requires_grad retain_grad stride
""")


def literal_int(node: ast.AST | None) -> int | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = literal_int(node.operand)
        return None if inner is None else -inner
    return None


def other(value: FromBatch, node: ast.AST) -> FromBatch:
    """Some function of the share, computed at `node`. What rows went through before does not matter any more."""
    kept = value.origins if value.kind in {"mean", "sum", "count"} else frozenset()
    return replace(value, kind="other", origins=kept | {node})


def collapsed(value: FromBatch, kind: str, node: ast.AST) -> FromBatch:
    return replace(value, kind=kind, origins=value.origins | {node})


def dims_of(rest: list[ast.expr], keywords: dict[str, ast.expr], position: int = 0) -> Dims:
    """The dimensions that a call names; None where it names none."""
    node = keywords.get("dim", keywords.get("dims", keywords.get("axis")))
    if node is None and len(rest) > position:
        node = rest[position]
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return None
    parts = node.elts if isinstance(node, ast.Tuple | ast.List) else [node]
    return [literal_int(part) for part in parts]


def _spares_rows(dims: Dims) -> bool:
    return dims is not None and all(d is not None and d != 0 for d in dims)


@dataclass(frozen=True, slots=True)
class Operation:
    """The function `name` of a tensor and other arguments, called (or an attribute read) at `node`.

    counts: the arguments known to be the number of rows. others: the values from batches among the arguments.
    """

    name: str
    node: ast.AST
    rest: list[ast.expr] = field(default_factory=list)
    keywords: dict[str, ast.expr] = field(default_factory=dict)
    counts: frozenset[ast.expr] = frozenset()
    others: tuple[FromBatch, ...] = ()

    def on(self, value: FromBatch) -> FromBatch | None:
        """What the result is; None when it does not depend on the share."""
        if self.name in {"size", "shape"}:
            return self._size(value)
        if self.name in {"numel", "nelement", "__len__"}:
            if value.kind == "other":
                return other(value, self.node)
            return collapsed(value, "count", self.node) if value.kind in PER_SAMPLE else None
        if self.name in _ABOUT_THE_TENSOR:
            return None
        if value.kind in SCALARS:
            return self._on_scalar(value)
        return self._on_rows(value) if value.kind != "shape" else None

    def _size(self, value: FromBatch) -> FromBatch | None:
        if value.kind not in {"rows", "batch", "mixed", "other"}:
            return None
        if not self.rest:
            return replace(value, kind="shape", origins=frozenset({self.node}))
        if literal_int(self.rest[0]) not in {0, None}:
            return None
        if value.kind in {"mixed", "other"}:
            return other(value, self.node)
        return collapsed(value, "count", self.node)

    def _on_scalar(self, value: FromBatch) -> FromBatch:
        host = value.host or self.name in api.HOST_METHODS
        if self.name in api.LINEAR:
            return replace(value, host=host)
        if self.name in {"sum", "mean"} and value.kind in {"mean", "sum"}:  # of a 0-d tensor: itself
            return value
        return replace(value, kind="other", host=host)

    def _on_rows(self, value: FromBatch) -> FromBatch:
        kinds = {o.kind for o in self.others}
        if self.name == "index_select" and value.kind == "rows" and kinds == {"order"}:
            return value
        if value.kind == "order" and self.name in _KEEPS_ORDER:
            return value
        if value.kind == "order" or kinds & {"other", "order"} or (self.name in _MATMUL and "mixed" in kinds):
            return other(value, self.node)
        if value.kind == "rows" and "mixed" in kinds:
            value = replace(value, kind="mixed")
        if self.name in _KEEPS_ROWS:
            return replace(value, host=value.host or self.name in api.HOST_METHODS)
        if self.name in api.REDUCTIONS:
            return self._reduce(value)
        if self.name in api.ALONG:
            return self._along(value)
        return self._reshape(value)

    def _dims(self) -> Dims:
        return dims_of(self.rest, self.keywords, position=int(self.name in api.DIM_COMES_SECOND))

    def _reduce(self, value: FromBatch) -> FromBatch:
        dims = self._dims()
        if _spares_rows(dims) and value.kind in {"rows", "batch"}:
            return replace(value, kind="batch" if self.name in api.RETURNS_SEVERAL else "rows")
        if self.name in {"max", "min"} and self.rest and dims == [None]:
            return value  # torch.max(a, b): element by element
        if dims is not None and value.kind in {"mixed", "layers"}:
            return other(value, self.node)
        if self.name in {"sum", "mean"}:
            return collapsed(value, self.name, self.node)
        return collapsed(value, "sum", self.node) if self.name == "count_nonzero" else other(value, self.node)

    def _along(self, value: FromBatch) -> FromBatch:
        dims = self._dims()
        if dims is None and self.name in api.NEED_A_DIM:
            return other(value, self.node)  # the last dimension of a loss per sample is its first
        if dims is not None and None not in dims and self.name in {"flip", "roll"} and value.kind == "rows":
            return value  # the same rows, at most in another order
        if dims is not None and not _spares_rows(dims):
            return other(value, self.node)
        several = self.name in api.RETURNS_SEVERAL and value.kind == "rows"
        return replace(value, kind="batch") if several else value

    def _reshape(self, value: FromBatch) -> FromBatch:
        first = self.rest[0] if self.rest else None
        if isinstance(first, ast.Tuple | ast.List) and first.elts:
            first = first.elts[0]
        dims: Dims
        match self.name:
            case "flatten" | "mT":
                keeps = True
            case "view" | "reshape" | "expand" | "repeat" | "unflatten":
                same = first is not None and (first in self.counts or literal_int(first) == -1)
                keeps = same and value.kind == "rows"
            case "squeeze" | "unsqueeze":
                dims = self._dims()
                if value.kind == "layers" and self.name == "squeeze" and dims == [0]:
                    return replace(value, kind="rows")
                keeps = dims is None or _spares_rows(dims)
            case "transpose" | "swapaxes" | "swapdims":
                dims = [literal_int(a) for a in self.rest[:2]]
                if value.kind == "layers" and dims in ([0, 1], [1, 0]):
                    return replace(value, kind="rows")
                keeps = len(dims) == 2 and _spares_rows(dims)
            case "permute":
                keeps = literal_int(first) == 0
            case "t" | "T" | "H" | "movedim":
                keeps = False
            case _:
                return other(value, self.node)
        return value if keeps else replace(value, kind="mixed")


def subscript(
    value: FromBatch, index: ast.expr, node: ast.AST, row_index: bool, permutes: bool
) -> FromBatch | None:
    """`value[index]`; `row_index`: the index itself is computed from rows (a mask); `permutes`: it is an order of them."""
    if permutes and value.kind == "rows":
        return value
    if value.kind == "batch":
        return replace(value, kind="rows")
    if value.kind == "rows" and isinstance(index, ast.Constant) and isinstance(index.value, str):
        return value  # no tensor takes a string: this is a batch whose parts have names
    if value.kind == "shape":
        of_rows = literal_int(index) in {0, None}
        return replace(value, kind="count", origins=frozenset({node})) if of_rows else None
    if value.kind == "layers" and literal_int(index) is not None:
        return replace(value, kind="rows")
    if value.kind in SCALARS:
        return value
    first = index.elts[0] if isinstance(index, ast.Tuple) and index.elts else index
    if isinstance(first, ast.Slice) and first.lower is first.upper is first.step is None and not row_index:
        return value
    return other(value, node)


def binary(
    op: ast.operator | ast.cmpop, left: FromBatch | None, right: FromBatch | None, node: ast.AST
) -> FromBatch | None:
    """`left op right`, either of which may not depend on the share (None)."""
    if left is None or right is None:
        value = left or right
        return None if value is None else _with_constant(op, value, right is value, node)
    if is_factor(right, left):
        return _with_constant(op, left, False, node)
    if is_factor(left, right):
        return _with_constant(op, right, True, node)
    kinds = {left.kind, right.kind}
    both = replace(left, origins=left.origins | right.origins, host=left.host and right.host)
    if isinstance(op, ast.MatMult):
        return other(both, node) if kinds & {"mixed", "other"} else replace(both, kind="rows")
    if kinds <= {"rows", "batch"}:
        return replace(both, kind="rows")
    if kinds <= {"rows", "mixed", "batch", "layers"}:
        return replace(both, kind="mixed")
    if isinstance(op, ast.Add | ast.Sub) and len(kinds) == 1:
        return both
    if isinstance(op, ast.Add | ast.Sub) and kinds <= {"sum", "mean", "mixture"}:
        return replace(both, kind="mixture")
    if isinstance(op, ast.Mult) and kinds == {"mean", "count"}:
        return replace(both, kind="sum")
    if isinstance(op, ast.Div) and left.kind == "sum" and right.kind == "count":
        return replace(both, kind="mean")
    return replace(both, kind="other", origins=both.origins or frozenset({node}))


def is_factor(number: FromBatch, loss: FromBatch) -> bool:
    """Whether a Python number stands beside a loss: it is made global where it is read, so every rank has the same."""
    read = number.host and number.kind in SCALARS
    return read and not loss.host and loss.kind in {"mean", "sum", "mixture"}


def _with_constant(
    op: ast.operator | ast.cmpop, value: FromBatch, on_the_right: bool, node: ast.AST
) -> FromBatch:
    if value.kind == "order":
        return other(value, node)
    if value.kind == "batch":
        return replace(value, kind="rows")
    if value.kind in {"rows", "mixed", "layers"}:
        return value
    if isinstance(op, ast.Mult) or (isinstance(op, ast.Div) and not on_the_right):
        return value
    if isinstance(op, ast.Add | ast.Sub) and value.kind in {"mean", "sum", "mixture"}:
        return replace(value, kind="mean" if value.kind == "mean" else "mixture")
    return replace(value, kind="other")
