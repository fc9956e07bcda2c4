"""Operations on nested tensors (tuples, lists, dicts, dataclasses and what looks like them) over all ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from crosstrain import checks, reduced
from crosstrain.comm import Comm
from crosstrain.comm_types import HOST
from crosstrain.containers import fields_of, same_dataclass, same_mapping, same_sequence
from crosstrain.frames import DistributedOperationException
from crosstrain.state import RUN

T = TypeVar("T")


def map_tensors(function: Callable[[Tensor], Any], data: Any, *, strict: str | None = None) -> Any:
    """``data`` with every tensor replaced by ``function(tensor)``; containers (dataclasses, too) keep their types.

    Other leaves pass through, unless ``strict`` names the operation: then they are a TypeError.
    """
    if isinstance(data, Tensor):
        return function(data)
    if isinstance(data, (tuple, list)):
        return same_sequence(data, [map_tensors(function, item, strict=strict) for item in data])
    if isinstance(data, Mapping):
        mapped = {key: map_tensors(function, value, strict=strict) for key, value in data.items()}
        return same_mapping(data, mapped)
    if (fields := fields_of(data)) is not None:
        changed = {name: map_tensors(function, value, strict=strict) for name, value in fields.items()}
        same = all(changed[name] is value for name, value in fields.items())
        return data if same else same_dataclass(data, changed)
    if strict is not None:
        raise TypeError(
            f"{strict} takes tensors in tuples, lists and dicts; it found a {type(data).__name__}. Use "
            f"gather_object (or gather_for_metrics) for other objects."
        )
    return data


def leaves(data: Any, *, strict: str | None = None) -> list[Tensor]:
    """Every tensor in ``data``, in the order of `map_tensors`; ``strict`` as there."""
    found: list[Tensor] = []
    map_tensors(found.append, data, strict=strict)
    return found


def only_tensors(data: Any) -> bool:
    """Whether every leaf is a tensor."""
    if isinstance(data, Mapping):
        return all(only_tensors(value) for value in data.values())
    if isinstance(data, (tuple, list)):
        return all(only_tensors(value) for value in data)
    if (fields := fields_of(data)) is not None:
        return all(only_tensors(value) for value in fields.values())
    return isinstance(data, Tensor)


def refill(data: Any, tensors: Iterable[Any]) -> Any:
    """``data`` with its tensors replaced, in order."""
    source = iter(tensors)
    return map_tensors(lambda _: next(source), data)


def send_to_device(tensor: Any, device: Any, non_blocking: bool = False, skip_keys: Any = None) -> Any:
    """Move tensors, and objects with a ``to`` method, wherever they are nested; ``skip_keys`` stay."""
    skipped = {skip_keys} if isinstance(skip_keys, str) else set(skip_keys or ())
    if isinstance(tensor, Mapping) and skipped:
        kept = {key: value for key, value in tensor.items() if key in skipped}
        return same_mapping(tensor, send_to_device(dict(tensor), device, non_blocking) | kept)
    if isinstance(tensor, (tuple, list, Mapping)) and not hasattr(tensor, "to"):
        return _move_nested(tensor, device, non_blocking)
    if not hasattr(tensor, "to"):
        return tensor
    try:
        return tensor.to(device, non_blocking=non_blocking)
    except TypeError:  # a `to` of the user's own that knows no non_blocking
        return tensor.to(device)


def _move_nested(data: Any, device: Any, non_blocking: bool) -> Any:
    if isinstance(data, (tuple, list)):
        return same_sequence(data, [send_to_device(item, device, non_blocking) for item in data])
    return same_mapping(
        data, {key: send_to_device(value, device, non_blocking) for key, value in data.items()}
    )


def gather(tensor: T) -> T:
    """Concatenate over the ranks along dim 0, in rank order: n rows become P * n, 0-d becomes (P,).

    Every rank must bring the same shapes (`pad_across_processes` makes them so). One process: ``tensor``
    itself. Raises TypeError for leaves that are not tensors.
    """
    comm = RUN.comm
    if comm.world == 1:
        return tensor
    rows = comm.all_gather_several(leaves(tensor, strict="gather"))
    flat = [row.flatten(0, 1) if row.dim() > 1 else row for row in rows]
    reduced.remember(flat, "gather")
    gathered: T = refill(tensor, flat)
    return gathered


def gather_object(obj: Any) -> Any:
    """The ranks' lists, joined in rank order; what is not a list counts as a list of one. One process: ``obj``."""
    comm = RUN.comm
    if comm.world == 1:
        return obj
    joined: list[Any] = []
    for part in comm.all_gather_object(obj):
        joined.extend(part) if isinstance(part, (list, tuple)) else joined.append(part)
    return joined


def broadcast(tensor: T, from_process: int = 0) -> T:
    """Copy one process's tensors to all, in place; returns ``tensor``."""
    comm = RUN.comm
    if comm.world > 1:
        map_tensors(lambda leaf: comm.broadcast(leaf, from_process), tensor, strict="broadcast")
    return tensor


def broadcast_object_list(object_list: list[Any], from_process: int = 0) -> list[Any]:
    """Replace the items of every process's list by those of one process; returns the list."""
    object_list[:] = RUN.comm.broadcast_object(object_list, from_process)
    return object_list


def broadcast_tensors(tensors: list[Tensor], comm: Comm, src: int = 0, chunk: int = 25 << 20) -> None:
    """Overwrite all tensors by one rank's, in few collectives: flat buffers of one dtype and device."""
    if comm.world == 1:
        return
    groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for group in groups.values():
        batch: list[Tensor] = []
        size = 0
        for tensor in group:
            batch.append(tensor)
            size += tensor.numel() * tensor.element_size()
            if size >= chunk:
                _broadcast_flat(batch, comm, src)
                batch, size = [], 0
        if batch:
            _broadcast_flat(batch, comm, src)


def _broadcast_flat(tensors: list[Tensor], comm: Comm, src: int) -> None:
    if len(tensors) == 1:
        comm.broadcast(tensors[0], src)
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    comm.broadcast(flat, src)
    if comm.rank == src:
        return
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    with torch.no_grad():
        for tensor, part in zip(tensors, parts, strict=True):
            tensor.copy_(part.view(tensor.shape))


def reduce(tensor: T, reduction: str = "mean", scale: float = 1.0) -> T:
    """New tensors with the sum, mean, max or min over the ranks, times ``scale``; "none": copies of one's own.

    Raises RuntimeError for the sum of a tensor that `reduce` or `gather` returned.
    """
    if reduction not in ("sum", "mean", "max", "min", "none"):
        raise ValueError(f"reduction {reduction!r} is unknown; choose one of sum, mean, max, min, none.")
    comm = RUN.comm
    own = comm.world == 1 or reduction == "none"
    if not own and reduction == "sum" and scale == 1.0:
        _refuse_reduced(tensor, comm)

    def one(leaf: Tensor) -> Tensor:
        out = leaf.clone() if own else comm.all_reduce(leaf, reduction)
        return out if scale == 1.0 else out * scale

    result: T = map_tensors(one, tensor, strict="reduce")
    if not own:
        reduced.remember(leaves(result), "reduce")
    return result


def _refuse_reduced(tensor: Any, comm: Comm) -> None:
    """Raise on every rank where one of them would sum what is global already."""
    tensors = leaves(tensor)
    said = reduced.problem(tensors, 'accelerator.reduce(..., "sum")')
    if said is None:
        return
    checks.failed(reduced.KIND, said)
    if all(leaf.device.type == HOST.type for leaf in tensors):
        comm.refuse(said)
    raise RuntimeError(said)  # on a device the other ranks exchange nothing that could carry it


def pad_across_processes(tensor: T, dim: int = 0, pad_index: float = 0, pad_first: bool = False) -> T:
    """Pad ``dim`` with ``pad_index`` to the longest over the ranks, behind (or before) the values.

    A tensor without that dimension, and equal sizes, are returned unchanged.
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
    """From each rank's shapes, the longest ``dim`` of every tensor that has it; other sizes must be equal."""
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


def pad_to(tensor: Tensor, size: int, dim: int = 0, value: float = 0, first: bool = False) -> Tensor:
    """``tensor`` with ``dim`` lengthened to ``size``; unchanged if it has that length."""
    have = tensor.shape[dim]
    if have == size:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = size
    out = tensor.new_full(shape, value)
    out.narrow(dim, size - have if first else 0, have).copy_(tensor)
    return out


def share(inputs: Any, rank: int, world: int, apply_padding: bool = False) -> Any:
    """One process's part of a list, tuple, string, tensor, dict of them, or data set, in order.

    The first ``N % world`` processes get one more; ``apply_padding`` repeats the last element to make all
    equal. Raises ValueError when the values of a dict differ in length.
    """
    if world == 1:
        return inputs
    if isinstance(inputs, Mapping):
        if len({len(value) for value in inputs.values()}) > 1:
            sizes = {key: len(value) for key, value in inputs.items()}
            raise ValueError(f"the values to split must have one length, not {sizes}")
        return {key: share(value, rank, world, apply_padding) for key, value in inputs.items()}
    length = len(inputs)
    size, extra = divmod(length, world)
    start = rank * size + min(rank, extra)
    stop = start + size + (rank < extra)
    if hasattr(inputs, "select") and hasattr(inputs, "column_names"):  # a data set of the `datasets` library
        indices = list(range(start, stop))
        if apply_padding and length and len(indices) < -(-length // world):
            indices.append(length - 1)
        return inputs.select(indices)
    part = inputs[start:stop]
    short = -(-length // world) - (stop - start)
    if apply_padding and short and length:
        part = _repeat_last(inputs, part, short)
    return part


def _repeat_last(inputs: Any, part: Any, times: int) -> Any:
    last = inputs[len(inputs) - 1 :]
    if isinstance(inputs, Tensor):
        return torch.cat([part, *([last] * times)])
    return part + last * times


def concatenate(data: list[Any], dim: int = 0) -> Any:
    """One nested structure from several of the same shape, their tensors concatenated."""
    first = data[0]
    columns = zip(*(leaves(item) for item in data), strict=True)
    return refill(first, [torch.cat(column, dim=dim) for column in columns])


def slice_tensors(data: Any, tensor_slice: Any) -> Any:
    """Every tensor indexed by ``tensor_slice``."""
    return map_tensors(lambda tensor: tensor[tensor_slice], data)


def find_batch_size(data: Any) -> int | None:
    """Rows of the first tensor with a dimension, None without one."""
    return next((tensor.shape[0] for tensor in leaves(data) if tensor.dim()), None)


def convert_to_fp32(tensor: T) -> T:
    """Half-precision tensors as float32."""

    def up(leaf: Tensor) -> Tensor:
        return leaf.float() if leaf.dtype in (torch.float16, torch.bfloat16) else leaf

    converted: T = map_tensors(up, tensor)
    return converted


def find_device(data: Any) -> torch.device | None:
    """The device of the first tensor, None without one."""
    return next((tensor.device for tensor in leaves(data)), None)


def recursively_apply(
    func: Callable[..., Any],
    data: Any,
    *args: Any,
    test_type: Callable[[Any], bool] = lambda value: isinstance(value, Tensor),
    error_on_other_type: bool = False,
    **kwargs: Any,
) -> Any:
    """``func(leaf, *args, **kwargs)`` for every leaf that ``test_type`` accepts; containers keep their types.

    Other leaves pass through, or are a TypeError.
    """
    if test_type(data):
        return func(data, *args, **kwargs)
    more: dict[str, Any] = {"test_type": test_type, "error_on_other_type": error_on_other_type, **kwargs}
    if isinstance(data, (tuple, list)):
        return same_sequence(data, [recursively_apply(func, item, *args, **more) for item in data])
    if isinstance(data, Mapping):
        mapped = {key: recursively_apply(func, value, *args, **more) for key, value in data.items()}
        return same_mapping(data, mapped)
    if error_on_other_type:
        raise TypeError(f"{getattr(func, '__name__', func)} cannot be applied to a {type(data).__name__}")
    return data


def copy_tensor_to_devices(tensor: Tensor | None = None) -> Tensor:
    """The main process's tensor on every process's device; the others pass None."""
    comm = RUN.comm
    shared = comm.broadcast_object(tensor if comm.rank == 0 else None)
    if shared is None:
        raise ValueError("copy_tensor_to_devices: the main process brought no tensor")
    return shared.to(comm.device)
