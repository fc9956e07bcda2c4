"""What a device's collectives cannot carry: NCCL and similar backends know fewer dtypes than torch, and no sparse tensors."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from crosstrain.comm.types import HOST

# The dtypes that NCCL cannot add, and those that take their place.
_ADDED = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}


def as_bytes(tensor: Tensor) -> Tensor:
    """A contiguous tensor's memory as bytes, which every backend moves."""
    return tensor.view(-1).view(torch.uint8)


def to_reducible(tensor: Tensor, op: str) -> Tensor:
    """The tensor as one that every backend can reduce: itself, a view of it, or a copy of another dtype."""
    if tensor.is_complex() and op in ("sum", "mean"):
        return torch.view_as_real(tensor)
    return tensor.to(_ADDED.get(tensor.dtype, tensor.dtype))


def from_reducible(out: Tensor, like: Tensor) -> Tensor:
    """Undo `to_reducible` on a result: a tensor of the dtype of ``like``."""
    if like.is_complex() and not out.is_complex():
        return torch.view_as_complex(out)
    return out.to(like.dtype)


class SparseSum:
    """Sums a sparse tensor of a device over the ranks, in place. The host's backend does it, because the device's cannot."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._there = tensor.to(HOST)
        self._work: Any = dist.all_reduce(self._there, async_op=True)

    def wait(self) -> None:
        self._work.wait()
        self._tensor.copy_(self._there)
