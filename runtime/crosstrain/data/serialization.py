"""Batches as flat bytes, for sending them from the process that reads for all."""

from __future__ import annotations

import copy
import ctypes
import math
import pickle
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from crosstrain.comm.types import HOST
from crosstrain.utils.nested import map_leaves

_ALIGN = 16
_PLAIN = (type(None), bool, int, float, str)


class TensorSlot(NamedTuple):
    """The place of a tensor in a batch's skeleton."""

    dtype: torch.dtype
    ndim: int


class Value(NamedTuple):
    """A plain value in a batch's skeleton; its type distinguishes 1 from True where skeletons are compared."""

    kind: type
    value: Any


class Flat(NamedTuple):
    """The parts of all ranks but the first as bytes.

    buffers: a uint8 tensor for each of these ranks. skeleton: the batch with a `TensorSlot` for every tensor and a
    `Value` for everything else. shapes: the tensors' dimensions after the rows, one after the other; they are the same
    on all ranks.
    """

    buffers: list[Tensor]
    skeleton: Any
    shapes: tuple[int, ...]


class _NotFlat(Exception):
    """A part holds more than plain tensors and values."""


def pack(parts: list[Any], rows: tuple[int, ...], head: int) -> Flat | None:
    """The parts of all ranks (None: an empty one) as bytes, after `head` bytes that are left free.

    Returns None unless they hold only plain tensors and values, and are equal but for their rows.
    """
    skeleton: Any = None
    shapes: tuple[int, ...] | None = None
    buffers: list[Tensor] = []
    for rank, part in enumerate(parts):
        leaves: list[Tensor] = []
        if part is not None:
            try:
                this = _take_apart(part, rows[rank], leaves)
            except _NotFlat:
                return None
            sizes = tuple(size for leaf in leaves for size in leaf.shape[1:])
            if shapes is None:
                skeleton, shapes = this, sizes
            elif sizes != shapes or this != skeleton:
                return None
        if rank:
            buffers.append(_join_bytes(leaves, head))
    return None if shapes is None else Flat(buffers, skeleton, shapes)


def unpack(buffer: Tensor, skeleton: Any, shapes: list[int], rows: int) -> Any:
    """The batch of `rows` rows whose bytes are at the start of `buffer`; its tensors are views of it."""
    at = 0
    sizes = iter(shapes)

    def leaf(stand_in: TensorSlot | Value) -> Any:
        nonlocal at
        if isinstance(stand_in, Value):
            return copy.copy(stand_in.value)
        shape = (rows, *islice(sizes, stand_in.ndim - 1)) if stand_in.ndim else ()
        length = math.prod(shape) * stand_in.dtype.itemsize
        view = buffer[at : at + length].view(stand_in.dtype).view(shape)
        at += aligned(length)
        return view

    return map_leaves(leaf, skeleton, _stands_in)


def pack_objects(parts: list[Any], head: int) -> list[Tensor]:
    """All parts but the first, pickled, with tensors on the host and without the rest of their storage."""
    pickled = [pickle.dumps(map_leaves(_own, part)) for part in parts[1:]]
    return [torch.frombuffer(bytearray(head) + content, dtype=torch.uint8) for content in pickled]


def unpack_object(buffer: Tensor) -> Any:
    return pickle.loads(buffer.cpu().numpy().tobytes())


def aligned(length: int) -> int:
    """The length rounded up, so that a tensor of any dtype may follow."""
    return -(-length // _ALIGN) * _ALIGN


def _take_apart(part: Any, rows: int, into: list[Tensor]) -> Any:
    """The part's skeleton; its tensors are appended to `into`."""

    def stand_in(leaf: Any) -> Any:
        if type(leaf) is Tensor:
            odd = leaf.layout != torch.strided or leaf.requires_grad or leaf.is_quantized
            if odd or leaf.is_conj() or leaf.is_neg() or (leaf.ndim and leaf.shape[0] != rows):
                raise _NotFlat
            into.append(leaf)
            return TensorSlot(leaf.dtype, leaf.ndim)
        if type(leaf) in _PLAIN or _is_empty(leaf):
            return Value(type(leaf), leaf)
        raise _NotFlat

    return map_leaves(stand_in, part, _is_empty)


def _join_bytes(leaves: list[Tensor], head: int) -> Tensor:
    lengths = [leaf.nbytes for leaf in leaves]
    joined = torch.empty(head + sum(map(aligned, lengths)), dtype=torch.uint8, device="cpu")
    at = head
    for leaf, length in zip(leaves, lengths, strict=True):
        if leaf.device.type == HOST.type and leaf.is_contiguous():
            # Takes a fifth of the time that views do.
            ctypes.memmove(joined.data_ptr() + at, leaf.data_ptr(), length)
        else:
            joined[at : at + length].view(leaf.dtype).view(leaf.shape).copy_(leaf)
        at += aligned(length)
    return joined


def _is_empty(value: Any) -> bool:
    """Whether this is an empty container, which counts as a leaf because it has none."""
    return type(value) in (dict, list, tuple) and not value


def _stands_in(value: Any) -> bool:
    return isinstance(value, (TensorSlot, Value))


def _own(leaf: Any) -> Any:
    return leaf.detach().cpu().clone() if type(leaf) is Tensor else leaf
