"""Batches as flat bytes: what travels when one process reads for all."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .place import map_leaves

_ALIGN = 16
_PLAIN = (type(None), bool, int, float, str)


class Slot(NamedTuple):
    """Stands for a tensor in a batch's skeleton."""

    dtype: torch.dtype
    ndim: int


class Flat(NamedTuple):
    """The parts of all ranks as bytes.

    buffers: for each rank a uint8 tensor. skeleton: the pickled batch with a `Slot` for every tensor.
    shapes: the tensors' dimensions behind the rows, one after the other; the same on all ranks.
    """

    buffers: list[Tensor]
    skeleton: bytes
    shapes: tuple[int, ...]


class _NotFlat(Exception):
    """A part is more than plain tensors."""


def pack(parts: list[Any], rows: tuple[int, ...], head: int) -> Flat | None:
    """The parts (None: an empty one) as bytes behind `head` free ones; None unless plain tensors, alike but
    for their rows. The first part stays here and is only looked at.
    """
    try:
        taken = [None if part is None else _take_apart(part, n) for part, n in zip(parts, rows, strict=True)]
    except _NotFlat:
        return None
    skeletons = {one[0] for one in taken if one is not None}
    shapes = {tuple(size for leaf in one[1] for size in leaf.shape[1:]) for one in taken if one is not None}
    if len(skeletons) != 1 or len(shapes) != 1:
        return None
    buffers = [
        _join_bytes([] if rank == 0 or one is None else one[1], head) for rank, one in enumerate(taken)
    ]
    return Flat(buffers, skeletons.pop(), shapes.pop())


def unpack(buffer: Tensor, skeleton: bytes, shapes: list[int], rows: int) -> Any:
    """The batch of `rows` rows whose bytes start `buffer`; its tensors are views of the buffer."""
    at = 0
    sizes = iter(shapes)

    def tensor(slot: Any) -> Any:
        nonlocal at
        if not isinstance(slot, Slot):
            return slot
        shape = (rows, *(next(sizes) for _ in range(slot.ndim - 1))) if slot.ndim else ()
        length = torch.Size(shape).numel() * slot.dtype.itemsize
        view = buffer[at : at + length].view(slot.dtype).view(shape)
        at += aligned(length)
        return view

    return map_leaves(tensor, pickle.loads(skeleton), _is_slot)


def pack_objects(parts: list[Any], head: int) -> list[Tensor]:
    """The same for any parts: pickled, with tensors on the host and without the storage they are views of."""
    pickled = [b"" if rank == 0 else pickle.dumps(map_leaves(_own, part)) for rank, part in enumerate(parts)]
    return [torch.frombuffer(bytearray(head) + content, dtype=torch.uint8) for content in pickled]


def unpack_object(buffer: Tensor) -> Any:
    return pickle.loads(buffer.cpu().numpy().tobytes())


def aligned(length: int) -> int:
    """Tensors start where any dtype may start."""
    return -(-length // _ALIGN) * _ALIGN


def _take_apart(part: Any, rows: int) -> tuple[bytes, list[Tensor]]:
    leaves: list[Tensor] = []

    def slot(leaf: Any) -> Any:
        if type(leaf) is Tensor:
            odd = leaf.layout != torch.strided or leaf.requires_grad or leaf.is_quantized
            if odd or leaf.is_conj() or leaf.is_neg() or (leaf.ndim and leaf.shape[0] != rows):
                raise _NotFlat
            leaves.append(leaf)
            return Slot(leaf.dtype, leaf.ndim)
        if type(leaf) in _PLAIN:
            return leaf
        raise _NotFlat

    return pickle.dumps(map_leaves(slot, part)), leaves


def _join_bytes(leaves: list[Tensor], head: int) -> Tensor:
    lengths = [leaf.numel() * leaf.itemsize for leaf in leaves]
    joined = torch.empty(head + sum(map(aligned, lengths)), dtype=torch.uint8)
    at = head
    for leaf, length in zip(leaves, lengths, strict=True):
        joined[at : at + length].view(leaf.dtype).view(leaf.shape).copy_(leaf)
        at += aligned(length)
    return joined


def _is_slot(value: Any) -> bool:
    return isinstance(value, Slot)


def _own(leaf: Any) -> Any:
    return leaf.detach().cpu().clone() if type(leaf) is Tensor else leaf
