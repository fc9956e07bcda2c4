"""Nested batches: put their tensors on the device, cut them by row, join them. Containers keep their own types."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from crosstrain.containers import fields_of, same_dataclass, same_mapping, same_sequence


def map_leaves(fn: Callable[[Any], Any], batch: Any, is_leaf: Callable[[Any], bool] | None = None) -> Any:
    """The batch with fn(leaf) for every leaf; the same object where nothing changed.

    Mappings, namedtuples, lists, tuples and dataclass instances are walked, and keep their types and other
    attributes; tensors, what `is_leaf` claims, and everything else are leaves.
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


class Placer:
    """Sends a batch to a device: every tensor, and every object that knows how to move (it has a `to` method)."""

    def __init__(self, device: torch.device, non_blocking: bool = False) -> None:
        self._device = device
        self._non_blocking = non_blocking

    def __call__(self, batch: Any) -> Any:
        return map_leaves(self._move, batch, _can_move)

    def _move(self, leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.to(self._device, non_blocking=self._non_blocking)
        if not _can_move(leaf):
            return leaf
        if self._non_blocking and _takes_non_blocking(type(leaf)):
            return leaf.to(self._device, non_blocking=True)
        return leaf.to(self._device)


def host() -> torch.device:
    """Where loaders produce their tensors."""
    return torch.default_generator.device


def _can_move(value: Any) -> bool:
    return callable(getattr(type(value), "to", None))


def _takes_non_blocking(kind: type[Any]) -> bool:
    try:
        parameters = inspect.signature(kind.to).parameters
    except (TypeError, ValueError):  # written in C: it does not say
        return False
    return "non_blocking" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
