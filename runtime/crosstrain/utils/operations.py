"""Operations on nested tensors (in tuples, lists, mappings and dataclasses) over all ranks of the run.

Scripts import them from here, as from ``accelerate.utils.operations``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy
import torch
from torch import Tensor

from crosstrain.comm import collectives, double_reduction
from crosstrain.comm.frames import DistributedOperationException as DistributedOperationException
from crosstrain.comm.placement import Placer
from crosstrain.comm.protocol import Comm
from crosstrain.comm.types import HOST
from crosstrain.run import RUN
from crosstrain.utils import checks
from crosstrain.utils.nested import convert_to_fp32 as convert_to_fp32
from crosstrain.utils.nested import leaves, map_tensors, pad_to, refill, same_mapping

T = TypeVar("T")


def send_to_device(tensor: Any, device: Any, non_blocking: bool = False, skip_keys: Any = None) -> Any:
    """Move nested tensors, and objects with a ``to`` method, to a device. skip_keys: keys of a mapping that stay."""
    place = Placer(device, non_blocking)
    if not isinstance(tensor, Mapping) or not skip_keys:
        return place(tensor)
    skipped = {skip_keys} if isinstance(skip_keys, str) else set(skip_keys)
    moved = {key: value if key in skipped else place(value) for key, value in tensor.items()}
    return same_mapping(tensor, moved)


def gather(tensor: T) -> T:
    """Concatenate tensors over the ranks along dim 0, in rank order: (n, ...) becomes (P * n, ...), 0-d becomes (P,).

    Every rank must bring the same shapes and dtypes; `pad_across_processes` pads to equal shapes. With one process this
    returns ``tensor`` itself.

    Raises TypeError for leaves that are not tensors, and DistributedOperationException if shapes or dtypes differ.
    """
    return collectives.gather(tensor, RUN.comm)


def gather_object(obj: Any) -> Any:
    """Join the ranks' lists in rank order; any other object counts as a list of one. With one process this is ``obj``."""
    comm = RUN.comm
    if comm.world == 1:
        return obj
    joined: list[Any] = []
    for part in comm.all_gather_object(obj):
        joined.extend(part) if isinstance(part, (list, tuple)) else joined.append(part)
    return joined


def broadcast(tensor: T, from_process: int = 0) -> T:
    """Copy the tensors of ``from_process`` to all processes, in place; returns ``tensor``."""
    comm = RUN.comm
    if comm.world > 1:
        map_tensors(lambda leaf: comm.broadcast(leaf, from_process), tensor, strict="broadcast")
    return tensor


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Replace the items of every process's list by those of ``from_process``; returns the list. It starts the run where nothing
    has: a helper that several scripts share calls it before they have an Accelerator."""
    object_list[:] = RUN.start().broadcast_object(object_list, from_process)
    return object_list


def reduce(tensor: T, reduction: str = "mean", scale: float = 1.0) -> T:
    """New tensors with the sum, mean, max or min over the ranks, times ``scale``.

    The numbers of Python and of numpy, and arrays of them, are reduced, too, and stay what they are. Where one program
    computes for all hosts, a number is the same on each of them already, and its sum is the number itself. Tensors of one
    dtype and device are reduced in one collective, and so are small tensors of several dtypes on the host.

    reduction: "sum", "mean", "max", "min", or "none" for copies of this rank's own tensors.

    Raises ValueError for any other reduction, TypeError for other leaves, and RuntimeError for the sum of a tensor that
    `reduce` or `gather` returned.
    """
    if reduction not in ("sum", "mean", "max", "min", "none"):
        raise ValueError(f"reduction {reduction!r} is unknown; choose one of sum, mean, max, min, none.")
    comm = RUN.comm
    given = leaves(tensor, strict="reduce", numbers=True)
    if comm.world == 1 or reduction == "none":
        found = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in given]
    else:
        found = _over_ranks(given, reduction, comm, scaled=scale != 1.0)
    scaled = found if scale == 1.0 else [leaf * scale for leaf in found]
    if comm.world > 1 and reduction != "none":
        double_reduction.remember([leaf for leaf in scaled if isinstance(leaf, Tensor)], "reduce")
    result: T = refill(tensor, scaled, numbers=True)
    return result


def _over_ranks(given: list[Any], reduction: str, comm: Comm, *, scaled: bool) -> list[Any]:
    """The tensors and numbers, reduced over the ranks."""
    tensors = [leaf if isinstance(leaf, Tensor) else _exactly(leaf) for leaf in given]
    if reduction == "sum" and not scaled:
        _refuse_reduced(tensors, comm)
    if reduction == "sum" and not comm.averages:  # one program: a number is the same on every host
        numbers = [leaf for leaf in given if not isinstance(leaf, Tensor)]
        if len(numbers) == len(given):
            return numbers
    reduced = collectives.reduce_tensors(tensors, reduction, comm)
    return [
        out if isinstance(leaf, Tensor) else _as_given(leaf, out)
        for leaf, out in zip(given, reduced, strict=True)
    ]


def _as_given(number: Any, out: Tensor) -> Any:
    """The value, as numpy's number or array where it was one: the script may ask it for `.item()`, or for its `.dtype`."""
    if not isinstance(number, numpy.generic | numpy.ndarray):
        return out.item()
    value = out.numpy()
    stays = (value.dtype.kind == "f") is (number.dtype.kind == "f")
    return (value.astype(number.dtype) if stays else value)[()]


def _exactly(number: Any) -> Tensor:
    """A number or an array as an int64 or float64 tensor, which keeps all its digits; on the host, where every run can
    exchange it."""
    exact = torch.int64 if numpy.asarray(number).dtype.kind in "iu" else torch.float64
    return torch.tensor(number, dtype=exact, device="cpu")


def _refuse_reduced(tensors: list[Tensor], comm: Comm) -> None:
    """Raise on every rank if one of them would sum a tensor that contains all processes' values already."""
    said = double_reduction.problem(tensors, 'accelerator.reduce(..., "sum")')
    if said is None:
        return
    checks.failed(double_reduction.KIND, said)
    if all(leaf.device.type == HOST.type for leaf in tensors):
        comm.refuse(said)
    # Tensors on a device are not exchanged as frames, so the other ranks cannot be told.
    raise RuntimeError(said)


def pad_across_processes(tensor: T, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> T:
    """Pad each tensor along ``dim`` to its largest size over the ranks.

    Tensors that have that size, or lack the dimension, are returned unchanged.

    Args:
        pad_index: the padding value.
        pad_first: put the padding in front of the values instead of behind them.

    Raises TypeError for leaves that are not tensors, and DistributedOperationException if other dimensions differ.
    """
    comm = RUN.comm
    if comm.world == 1:
        return tensor
    shapes = comm.all_gather_object([tuple(leaf.shape) for leaf in leaves(tensor)])
    longest = iter(_longest(shapes, dim))

    def pad(leaf: Tensor) -> Tensor:
        if not -leaf.dim() <= dim < leaf.dim():
            return leaf
        return pad_to(leaf, next(longest), dim, pad_index, pad_first)

    padded: T = map_tensors(pad, tensor, strict="pad_across_processes")
    return padded


def _longest(shapes: list[list[tuple[int, ...]]], dim: int) -> list[int]:
    """From each rank's shapes, the largest size of ``dim`` for every tensor that has it; other sizes must be equal."""
    longest = []
    for index in range(max(map(len, shapes))):
        there = [rank[index] if index < len(rank) else None for rank in shapes]
        having = [shape for shape in there if shape is not None and -len(shape) <= dim < len(shape)]
        if not having:
            continue
        if len(having) < len(there) or len({_without(shape, dim) for shape in having}) > 1:
            lines = "\n".join(f"  rank {rank}: {shape}" for rank, shape in enumerate(there))
            raise DistributedOperationException(
                f"pad_across_processes pads dim {dim} of tensors that are otherwise alike on every rank; tensor "
                f"{index} has these shapes:\n{lines}"
            )
        longest.append(max(shape[dim] for shape in having))
    return longest


def _without(shape: tuple[int, ...], dim: int) -> tuple[int | None, ...]:
    """The shape with a gap at ``dim``."""
    place = dim % len(shape)
    return (*shape[:place], None, *shape[place + 1 :])
