"""Nested structures of tensors: walks them, rebuilds them with other contents, and counts their rows."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from numbers import Real
from typing import Any, TypeVar

import numpy
import torch
from torch import Tensor

T = TypeVar("T")


def same_sequence(like: Any, items: Iterable[Any]) -> Any:
    """A tuple, named tuple or list of the type of `like`."""
    return type(like)(*items) if hasattr(like, "_fields") else type(like)(items)


def same_mapping(like: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """A mapping of the type of `like`, which has the same keys. A mutable one is copied, as its constructor is unknown."""
    if type(like) is dict:
        return items
    if isinstance(like, MutableMapping):
        filled = copy.copy(like)
        for key, value in items.items():  # not `update`, which transformers' model outputs refuse
            filled[key] = value
        return filled
    kind: Any = type(like)
    return kind(items)


def fields_of(data: Any) -> dict[str, Any] | None:
    """The fields of a dataclass instance by name, None for anything else."""
    if not dataclasses.is_dataclass(data) or isinstance(data, type):
        return None
    return {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}


def same_dataclass(like: Any, fields: dict[str, Any]) -> Any:
    """A copy of the dataclass instance `like`, which may be frozen, with other values of these fields."""
    filled = copy.copy(like)
    for name, value in fields.items():
        object.__setattr__(filled, name, value)
    return filled


def map_leaves(fn: Callable[[Any], Any], batch: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The batch with fn(leaf) in place of every leaf; parts in which nothing changes stay the same objects.

    Mappings, namedtuples, lists, tuples and dataclass instances are walked and keep their types and other attributes.
    Tensors, objects for which `is_leaf` is true, and everything else are leaves.
    """
    if isinstance(batch, Tensor) or (is_leaf is not None and is_leaf(batch)):
        return fn(batch)
    if isinstance(batch, Mapping):
        new = {key: map_leaves(fn, value, is_leaf) for key, value in batch.items()}
        return batch if all(new[key] is batch[key] for key in new) else same_mapping(batch, new)
    if isinstance(batch, (list, tuple)):
        values = [map_leaves(fn, value, is_leaf) for value in batch]
        if all(value is old for value, old in zip(values, batch, strict=True)):
            return batch
        return same_sequence(batch, values)
    if (fields := fields_of(batch)) is not None:
        changed = {name: map_leaves(fn, value, is_leaf) for name, value in fields.items()}
        same = all(changed[name] is value for name, value in fields.items())
        return batch if same else same_dataclass(batch, changed)
    return fn(batch)


def map_tensors(
    function: Callable[[Any], Any], data: Any, *, strict: str | None = None, numbers: bool = False
) -> Any:
    """``data`` with ``function(tensor)`` in place of every tensor; see `map_leaves`.

    Args:
        strict: the name of the operation; other leaves are then a TypeError. None: they stay.
        numbers: ints and floats are replaced like tensors.
    """
    return map_leaves(lambda leaf: function(leaf) if _counts(leaf, strict, numbers) else leaf, data)


def _counts(leaf: Any, strict: str | None, numbers: bool) -> bool:
    """Whether a leaf is a tensor or, with ``numbers``, a number; for any other, TypeError if ``strict``."""
    if isinstance(leaf, Tensor) or (numbers and is_numeric(leaf)):
        return True
    if strict is not None:
        raise TypeError(
            f"{strict} takes tensors in tuples, lists and dicts; it found a {type(leaf).__name__}. Use "
            f"gather_object (or gather_for_metrics) for other objects."
        )
    return False


def is_numeric(data: Any) -> bool:
    """Whether it is an int or a float, of Python or NumPy, and not a bool; or an array of them."""
    if isinstance(data, numpy.ndarray):
        return data.dtype.kind in "iuf"
    return isinstance(data, Real) and not isinstance(data, bool)


def every_leaf(data: Any, is_leaf: Callable[[Any], bool] | None = None) -> list[Any]:
    """The leaves in ``data``, in the order of `map_leaves`."""
    found: list[Any] = []

    def note(leaf: Any) -> Any:
        found.append(leaf)
        return leaf

    map_leaves(note, data, is_leaf)
    return found


def leaves(data: Any, *, strict: str | None = None, numbers: bool = False) -> list[Any]:
    """Every tensor in ``data``. ``strict``, ``numbers``: see `map_tensors`."""
    return [leaf for leaf in every_leaf(data) if _counts(leaf, strict, numbers)]


def only_tensors(data: Any) -> bool:
    """Whether every leaf is a tensor."""
    return all(isinstance(leaf, Tensor) for leaf in every_leaf(data))


def refill(data: Any, tensors: Iterable[Any], *, numbers: bool = False) -> Any:
    """``data`` with its tensors (with ``numbers`` also its numbers) replaced by ``tensors``, in order."""
    source = iter(tensors)
    return map_tensors(lambda _: next(source), data, numbers=numbers)


def pad_to(tensor: Tensor, size: int, dim: int = 0, value: float = 0, first: bool = False) -> Tensor:
    """``tensor`` padded along ``dim`` to ``size``, unchanged if it has that size. first: put the padding in front."""
    have = tensor.shape[dim]
    if have == size:
        return tensor
    shape = list(tensor.shape)
    shape[dim] = size
    out = tensor.new_full(shape, value)
    out.narrow(dim, size - have if first else 0, have).copy_(tensor)
    return out


def convert_to_fp32(tensor: T) -> T:
    """``tensor`` (nested) with float16 and bfloat16 tensors converted to float32."""

    def up(leaf: Tensor) -> Tensor:
        return leaf.float() if leaf.dtype in (torch.float16, torch.bfloat16) else leaf

    converted: T = map_tensors(up, tensor)
    return converted


def rows_of(batch: Any) -> int | None:
    """The batch's number of rows: dimension 0 of its first tensor, or the length of its first list of plain values.

    None if it has neither.
    """
    if isinstance(batch, Tensor):
        return batch.shape[0] if batch.ndim else None
    if isinstance(batch, Mapping):
        return _first(batch.values())
    if is_column(batch):
        return len(batch)
    if isinstance(batch, (list, tuple)):
        return _first(batch)
    return _first((fields_of(batch) or {}).values())


def is_column(value: Any) -> bool:
    """Whether it is a list or tuple of plain values, one for each row, such as the strings of a collated batch."""
    return (
        type(value) in (list, tuple)
        and len(value) > 0
        and all(isinstance(item, (str, bytes, int, float, bool)) for item in value)
    )


def _first(parts: Any) -> int | None:
    return next((n for n in map(rows_of, parts) if n is not None), None)
