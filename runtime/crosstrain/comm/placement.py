"""Putting nested batches on a device."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from crosstrain.utils.nested import map_leaves


class Placer:
    """Moves a batch to a device: every tensor in it, and every other object with a `to` method."""

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
    """The device on which loaders make their tensors."""
    return torch.default_generator.device


def _can_move(value: Any) -> bool:
    return callable(getattr(type(value), "to", None))


def _takes_non_blocking(kind: type[Any]) -> bool:
    try:
        parameters = inspect.signature(kind.to).parameters
    except (TypeError, ValueError):  # a function written in C has no signature
        return False
    return "non_blocking" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
