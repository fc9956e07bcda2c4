"""Collectives on nested and on many tensors."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from crosstrain.comm import double_reduction
from crosstrain.comm.frames import CAPACITY
from crosstrain.comm.protocol import Comm
from crosstrain.comm.types import HOST
from crosstrain.utils.nested import leaves, refill

T = TypeVar("T")
LARGE = 1 << 20  # bytes


def gather(tensor: T, comm: Comm) -> T:
    """Concatenate over the ranks along dim 0: see `crosstrain.utils.operations.gather`."""
    if comm.world == 1:
        return tensor
    rows = comm.all_gather_several(leaves(tensor, strict="gather"))
    flat = [row.flatten(0, 1) if row.dim() > 1 else row for row in rows]
    double_reduction.remember(flat, "gather")
    gathered: T = refill(tensor, flat)
    return gathered


def reduce_tensors(tensors: list[Tensor], reduction: str, comm: Comm) -> list[Tensor]:
    """New tensors, the same on every rank: each the "sum", "mean", "max" or "min" over the ranks.

    All tensors of one dtype and device have one collective; a `LARGE` one has its own, without a copy.
    """
    if not comm.averages:  # one program computes for all processes, and each tensor is whole already
        return [comm.all_reduce(tensor, reduction) for tensor in tensors]
    if _fits_one_message(tensors):
        rows = comm.all_gather_several(tensors)
        return [reduce_rows(each, reduction) for each in rows]
    together: dict[tuple[torch.dtype, torch.device], list[int]] = {}
    out = [tensor.detach() for tensor in tensors]
    for number, tensor in enumerate(out):
        if tensor.nbytes >= LARGE:
            out[number] = comm.all_reduce(tensor, reduction)
        else:
            together.setdefault((tensor.dtype, tensor.device), []).append(number)
    for numbers in together.values():
        group = [out[number] for number in numbers]
        for number, reduced in zip(numbers, _reduce_flat(group, reduction, comm), strict=True):
            out[number] = reduced
    return out


def _fits_one_message(tensors: list[Tensor]) -> bool:
    """Whether tensors of several dtypes on the host are small enough for one frame of each rank."""
    if len({tensor.dtype for tensor in tensors}) < 2 or any(t.device.type != HOST.type for t in tensors):
        return False
    return sum(tensor.nbytes for tensor in tensors) <= CAPACITY


def reduce_rows(rows: Tensor, op: str) -> Tensor:
    """Reduce (world, ...) to (...), in rank order, so that every rank gets the same bits."""
    if op == "max":
        return rows.amax(0)
    if op == "min":
        return rows.amin(0)
    summed = rows.sum(0, dtype=rows.dtype)
    return summed / len(rows) if op == "mean" else summed


def _reduce_flat(tensors: list[Tensor], reduction: str, comm: Comm) -> list[Tensor]:
    if len(tensors) == 1:
        return [comm.all_reduce(tensors[0], reduction)]
    flat = comm.all_reduce(torch.cat([tensor.reshape(-1) for tensor in tensors]), reduction)
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    return [part.view(tensor.shape).clone() for tensor, part in zip(tensors, parts, strict=True)]


def broadcast_tensors(tensors: list[Tensor], comm: Comm, src: int = 0, chunk: int = 25 << 20) -> None:
    """Overwrite all tensors by those of rank ``src``, in few collectives: flat buffers of one dtype and device.

    ``chunk``: bytes of such a buffer; a tensor of this size or more has its own collective.
    """
    if comm.world == 1:
        return
    groups: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
    for tensor in tensors:
        groups.setdefault((tensor.dtype, tensor.device), []).append(tensor)
    for group in groups.values():
        batch: list[Tensor] = []
        size = 0
        for tensor in group:
            if tensor.nbytes >= chunk:  # sent on its own, without a copy
                comm.broadcast(tensor, src)
                continue
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
