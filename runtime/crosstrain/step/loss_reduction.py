"""The kind of a loss, read from its autograd graph: a sum over the batch's rows, a mean over them, or unknown.

A loss is followed through additions and scalings by Python numbers down to its terms: a loss function's own reduction,
or a `sum` or `mean` over a tensor with the batch's rows. A sum that is divided by a number of rows is a mean. A sum
that is divided by a tensor, or by a number that weights add up to, or that may count something else (valid tokens,
boxes), is unknown, as is every term of any other kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import combinations
from math import isclose, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from crosstrain.utils import checks
from crosstrain.utils.checks import Place

_MOST = 1000  # nodes of a graph that are visited; a loss with more terms is unknown
_SAME_VALUE = {"CloneBackward0", "ToCopyBackward0", "ViewBackward0", "SqueezeBackward0", "SqueezeBackward1"}
_SAME_VALUE |= {
    "UnsqueezeBackward0",
    "ReshapeAliasBackward0",
    "UnsafeViewBackward0",
    "NegBackward0",
    "AliasBackward0",
}
_TERMS = {"AddBackward0", "SubBackward0", "RsubBackward1"}
_SCALED = {"MulBackward0", "MulBackward1", "DivBackward0", "DivBackward1"}
_TOTALS = {"SumBackward0", "SumBackward1"}
_MEANS = {"MeanBackward0", "MeanBackward1"}
_JOINED = {"StackBackward0", "CatBackward0"}
_REDUCED = {1: "mean", 2: "sum"}  # torch's numbers for reductions


class Scaling(NamedTuple):
    """A Python number by which a term is scaled on its way to the loss."""

    divisor: float  # the reciprocal of a factor
    may_count: bool  # it is a whole number, perhaps of valid tokens or boxes


Step = tuple[Any, tuple[Scaling, ...]]  # a node of the graph, and the scalings of its value


class Kind(Enum):
    SUM = "sum"
    MEAN = "mean"
    PENALTY = "penalty"  # of parameters only, and so the same on every rank
    BY_WHOLE = "by whole"  # a sum divided by the rows of all ranks' batches, or by a number like it
    UNKNOWN = "unknown"


def kinds(loss: Tensor, rows: int | None, replicas: int) -> set[Kind]:
    """The kinds of the terms of a loss, a tensor of one element.

    ``rows``: the number of rows of this rank's batch; None if it is unknown. ``replicas``: those that share a batch.
    """
    found: set[Kind] = set()
    waiting: list[Step] = [(loss.grad_fn, ())] if loss.numel() == 1 else []
    for _ in range(_MOST):
        if not waiting:
            break
        node, scalings = waiting.pop()
        further = _follow(node, scalings)
        if further is None:
            found.add(_kind(node, scalings, rows, replicas))
        else:
            waiting += further
    if waiting or not found:
        return {Kind.UNKNOWN}
    if Kind.BY_WHOLE in found:  # a number that makes another term a mean counts this rank's rows
        by_chance = bool(found & {Kind.MEAN, Kind.UNKNOWN})
        found = found - {Kind.BY_WHOLE} | {Kind.UNKNOWN if by_chance else Kind.SUM}
    return found


def _follow(node: Any, scalings: tuple[Scaling, ...]) -> list[Step] | None:
    """The nodes that an addition or scaling gets its value from; None for any other node, which is a term."""
    name = node.name()
    before = [parent for parent, _ in node.next_functions if parent is not None]
    if name in _TERMS or name in _SAME_VALUE:
        return [(parent, scalings) for parent in before]
    if name in _SCALED:
        scaling = _scaling(node, divides=name.startswith("Div"))
        return None if scaling is None else [(parent, (*scalings, scaling)) for parent in before]
    if name not in _TOTALS | _MEANS:
        return None
    sizes = _summed_sizes(node)
    if prod(sizes) == 1:
        return [(parent, scalings) for parent in before]
    parts = [parent for parent, _ in before[0].next_functions if parent is not None] if before else []
    if before and before[0].name() in _JOINED and sizes == (len(before[0].next_functions),):
        # A list of losses, stacked or concatenated.
        count = (Scaling(len(parts), True),) if name in _MEANS else ()
        return [(parent, scalings + count) for parent in parts]
    return None


def _scaling(node: Any, divides: bool) -> Scaling | None:
    """The Python number that a node divides or multiplies by; None for a tensor."""
    other = getattr(node, "_saved_other", None)
    if isinstance(other, Tensor):
        # A Python number that became a tensor can be recognised: it does not take part in type promotion.
        least = torch.int8 if not other.dtype.is_floating_point else torch.float16
        least_of_all = torch.ones((), dtype=least, device="cpu")
        marked = other.dim() == 0 and torch.result_type(other, least_of_all) != other.dtype
        other = other.item() if marked else None
    if not isinstance(other, (int, float)) or other == 0:
        return None
    return Scaling(other, float(other).is_integer() and other > 2) if divides else Scaling(1 / other, False)


def _kind(node: Any, scalings: tuple[Scaling, ...], rows: int | None, replicas: int) -> Kind:
    name = node.name()
    reduction = _REDUCED.get(getattr(node, "_saved_reduction", 0))
    by_rows = True
    if reduction is not None:
        sizes = _shape(*node.next_functions[0])
    elif name in _TOTALS | _MEANS:
        sizes = _summed_sizes(node)
        reduction = "sum" if name in _TOTALS else "mean"
        by_rows = bool(sizes) and rows is not None and rows > 1 and sizes[0] == rows
    else:
        return Kind.UNKNOWN
    if reduction == "mean" and not _plain_mean(node):
        return Kind.UNKNOWN
    parent, index = node.next_functions[0]
    sources = set(_sources(parent, index, sizes, rows))
    if sources == {"parameter"}:
        return Kind.PENALTY
    by_rows |= reduction == "sum" and "rows" in sources
    if not by_rows and "loss" not in sources:
        return Kind.UNKNOWN
    if reduction == "sum" and _divided_by_weights(parent, sizes, scalings):
        return Kind.UNKNOWN
    if name in _TOTALS:
        scalings = (*scalings, *_scaled_before(parent))
    return _scaled(Kind(reduction), scalings, sizes, rows, replicas)


def _scaled_before(node: Any) -> Iterator[Scaling]:
    """The Python numbers by which all elements are scaled that are then summed: `(loss / len(x)).sum()`."""
    while node is not None and node.name() in _SCALED:
        scaling = _scaling(node, divides=node.name().startswith("Div"))
        if scaling is None:
            return
        yield scaling
        node = next((parent for parent, _ in node.next_functions if parent is not None), None)


def _divided_by_weights(node: Any, sizes: tuple[int, ...], scalings: tuple[Scaling, ...]) -> bool:
    """Whether a sum of products is divided by what one of the factors adds up to, as a mean by weights is."""
    if node is None or node.name() != "MulBackward0" or not scalings:
        return False
    factors = (getattr(node, f"_saved_{side}", None) for side in ("self", "other"))
    totals = [
        float(one.detach().expand(sizes).sum()) for one in factors if isinstance(one, Tensor) and one.dim()
    ]
    return any(isclose(scaling.divisor, total, rel_tol=1e-5) for scaling in scalings for total in totals)


def _plain_mean(node: Any) -> bool:
    """Whether a mean is over all rows, and not over the weights, or those targets that are not ignored."""
    total, target = getattr(node, "_saved_total_weight", None), getattr(node, "_saved_target", None)
    return total is None or target is None or total.item() == target.numel()


def _scaled(
    kind: Kind, scalings: tuple[Scaling, ...], sizes: tuple[int, ...], rows: int | None, replicas: int
) -> Kind:
    """The kind of a sum or mean after its scalings."""
    counts = _counts(sizes, rows)
    divisors = [scaling.divisor for scaling in scalings]
    if kind is Kind.MEAN:  # multiplied by its rows, it is a sum
        return Kind.UNKNOWN if any(isclose(1, n * divisor) for divisor in divisors for n in counts) else kind
    if any(isclose(divisor, n) for divisor in divisors for n in counts):
        return Kind.MEAN
    if any(isclose(divisor, n * replicas) for divisor in divisors for n in counts):
        return Kind.BY_WHOLE  # averaging divides by the replicas again
    return Kind.UNKNOWN if any(scaling.may_count for scaling in scalings) else kind


def _counts(sizes: tuple[int, ...], rows: int | None) -> set[int]:
    """The numbers of rows of a tensor, and of elements of rows and other dimensions (tokens, pixels)."""
    inner = [prod(some) for n in range(len(sizes)) for some in combinations(sizes[1:], n)]
    counts = {first * rest for first in (sizes[0] if sizes else 1, rows or 0) for rest in inner or [1]}
    return counts - {0}


def _sources(node: Any, index: int, sizes: tuple[int, ...], rows: int | None) -> Iterator[str]:
    """What the elements of a tensor are computed from: a "parameter", a "loss" for each, "rows" of the batch (also where they
    are laid out otherwise, words one below the other), or other "data"."""
    waiting, seen = [(node, index, sizes, False)], set[Any]()
    while waiting and len(seen) < _MOST:
        node, index, sizes, has_rows = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        shape = _shape(node, index)
        has_rows |= sizes[:1] == (rows,) != (1,)
        if len(shape) == 0 or prod(shape) != prod(sizes):
            yield "rows" if has_rows else "data"
        elif hasattr(node, "variable"):
            yield "parameter"
        elif hasattr(node, "_saved_reduction"):
            yield "loss"
        else:
            waiting += [(parent, at, shape, has_rows) for parent, at in node.next_functions]


def _summed_sizes(node: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in node._saved_self_sym_sizes)


def _shape(node: Any, index: int) -> tuple[int, ...]:
    """The shape of the tensor that a node made; () where it is unknown."""
    if node is None:
        return ()
    if hasattr(node, "variable"):
        return tuple(node.variable.shape)
    made = getattr(node, "_input_metadata", None)
    return tuple(int(size) for size in made[index].shape) if made else ()


def check(loss: Tensor, reduction: str, loader: Any, replicas: int, place: Place) -> str | None:
    """An error message where the kind of the loss contradicts ``reduction`` ("mean" or "sum"); else None.

    ``loader``: the prepared loader in whose loop the loss was made; None outside of every loop.
    """
    counts = None if loader is None else loader._crosstrain_counts
    rows = None if counts is None else counts.rows[loader._crosstrain.comm.rank]
    shared = loader is not None and loader._crosstrain.plan.split_batches
    found = kinds(loss, rows, replicas if shared else 1)
    if reduction == "mean" and Kind.SUM in found:
        message = (
            f"{place}: the loss is {'partly ' if Kind.MEAN in found else ''}a sum over the rows of the batch, and the "
            f"{replicas} processes average its gradient, which is then 1/{replicas} of the one that one process "
            f'computes. Use Accelerator(loss_reduction="sum"), or divide the sum by its number of rows'
            f"{' (the loss has a mean, too, for which only that is right)' if Kind.MEAN in found else ''}."
        )
    elif reduction == "sum" and found <= {Kind.MEAN, Kind.PENALTY} and Kind.MEAN in found:
        message = (
            f'{place}: the loss is a mean over the rows of the batch, and under loss_reduction="sum" the {replicas} '
            f"processes add its gradients up: they are {replicas} times those that one process computes. Leave "
            f'loss_reduction="sum" out, or use a loss with reduction="sum".'
        )
    else:
        certain = Kind.UNKNOWN not in found
        checks.held("mean", place) if certain else checks.expect("mean", place)
        return None
    checks.failed("mean", message, place)
    return message
