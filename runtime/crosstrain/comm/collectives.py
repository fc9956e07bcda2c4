"""Collectives on nested and on many tensors."""

from __future__ import annotations

from typing import TypeVar

import torch
from torch import Tensor

from crosstrain.comm import double_reduction
from crosstrain.comm.protocol import Comm
from crosstrain.utils.nested import leaves, refill

T = TypeVar("T")


def gather(tensor: T, comm: Comm) -> T:
    """Concatenate over the ranks along dim 0: see `crosstrain.utils.operations.gather`."""
    if comm.world == 1:
        return tensor
    rows = comm.all_gather_several(leaves(tensor, strict="gather"))
    flat = [row.flatten(0, 1) if row.dim() > 1 else row for row in rows]
    double_reduction.remember(flat, "gather")
    gathered: T = refill(tensor, flat)
    return gathered


def broadcast_tensors(tensors: list[Tensor], comm: Comm, src: int = 0, chunk: int = 25 << 20) -> None:
    """Overwrite all tensors by one rank's, in few collectives: flat buffers of one dtype and device.

    ``chunk``: the bytes of such a buffer.
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
            if tensor.nbytes >= chunk:  # large enough to go by itself, without a copy
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
