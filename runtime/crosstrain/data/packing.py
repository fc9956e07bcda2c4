"""Values as each process sends them to be merged: their tensors on the CPU, their objects by attributes."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy
import torch
from torch import Tensor

from crosstrain.comm.types import HOST
from crosstrain.data import added_attributes
from crosstrain.utils.nested import map_leaves

_PLAIN = {int, float, bool, str, bytes, complex, type(None)}


@dataclass(frozen=True, eq=False)
class SentTensor:
    """A tensor on its way to other processes. on_device: whether it was on a device that is not the CPU."""

    tensor: Tensor
    on_device: bool

    def on(self, device: torch.device) -> Tensor:
        """The tensor, on this device if it was on one."""
        return self.tensor.to(device) if self.on_device else self.tensor


@dataclass(frozen=True, eq=False)
class SentEntries:
    """The packed entries of a mapping or named tuple. open: whether its kind makes missing entries when asked."""

    entries: dict[Any, Any]
    open: bool


@dataclass(frozen=True, eq=False)
class SentObject:
    """The packed attributes of an object that change, and the names of all; ``kind`` is its type's name."""

    kind: str
    attributes: dict[str, Any]
    names: frozenset[str]


class Unmergeable(TypeError):
    """Values that cannot be added up over the processes."""


def packed(value: Any, depth: int = 0) -> Any:
    """The value as it is sent to the other processes; `Unmergeable` for one that cannot be added up.

    depth: as of `Merge`.
    """
    if isinstance(value, Tensor):
        return SentTensor(value.detach().to(HOST), value.device != HOST)
    if type(value) in _PLAIN or isinstance(value, (Number, str, bytes, set, frozenset)) or is_numpy(value):
        return value
    if isinstance(value, Mapping):
        entries = {key: packed(entry, depth - 1) for key, entry in value.items()}
        return SentEntries(entries, isinstance(value, (Counter, defaultdict)))
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return SentEntries({name: packed(getattr(value, name)) for name in value._fields}, open=False)
    if isinstance(value, (list, tuple)) and depth > 0:
        return [packed(item, depth - 1) for item in value]
    if isinstance(value, (list, tuple, deque)):
        return _sequence(value)
    roles = added_attributes.of_object(value)
    if roles is None:
        raise Unmergeable(f"a {type(value).__name__} cannot be added up over the processes")
    held = {name: vars(value)[name] for name in roles.names if name in vars(value)}
    sent = {
        name: packed_as_it_is(v) if name in roles.last else packed(v, roles.depths.get(name, 0))
        for name, v in held.items()
    }
    return SentObject(type(value).__qualname__, sent, frozenset(vars(value)))


def packed_as_it_is(value: Any) -> Any:
    """An object as it is sent where one process's value is taken: with its tensors on the host."""
    return map_leaves(lambda leaf: packed(leaf) if isinstance(leaf, Tensor) else leaf, value)


def unpacked(value: Any, device: torch.device) -> Any:
    """What `packed_as_it_is` made; tensors that were on another process's device are on ``device``."""
    return map_leaves(
        lambda leaf: leaf.on(device) if isinstance(leaf, SentTensor) else leaf,
        value,
        lambda leaf: isinstance(leaf, SentTensor),
    )


def _sequence(value: Any) -> Any:
    items = value if all(type(item) in _PLAIN for item in value) else map(packed_as_it_is, value)
    if isinstance(value, deque):
        return deque(items, value.maxlen)
    return tuple(items) if isinstance(value, tuple) else list(items)


def is_numpy(value: Any) -> bool:
    return isinstance(value, (numpy.ndarray, numpy.generic))
