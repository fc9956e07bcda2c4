"""Means over ranks that hold different numbers of rows: what each rank's mean counts in them."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch import Tensor

from crosstrain.comm.protocol import Comm
from crosstrain.step.window import Gradients
from crosstrain.utils.nested import map_tensors


class RowWeights:
    """The weight of this rank's mean over its rows, in the step that the innermost active loader is at.

    The weight is 1 where every rank has as many rows; with `even_batches="weighted"` it is this rank's rows times the
    number of ranks, divided by all rows.
    """

    def __init__(self, comm: Comm, gradients: Gradients) -> None:
        self._comm = comm
        self._gradients = gradients
        self._last: weakref.ref[Tensor] | None = None  # the loss that was weighted last
        self._last_weight = 1.0

    def apply(self, loss: Tensor, given: Tensor, loss_reduction: str) -> Tensor:
        """``loss`` times its weight; ``given`` is the tensor that the script has of it, and may reduce later."""
        weight = self._gradients.active.weight(self._comm.rank)
        self._last, self._last_weight = weakref.ref(given), weight
        if loss_reduction == "sum":
            weight = float(self._comm.world) if weight else 0.0
        return loss if weight == 1.0 else loss * weight

    def mean(self, tensor: Any) -> Any:
        """See `Accelerator.weighted`."""
        return _times(tensor, self._of(tensor) if self._comm.averages else 1.0)

    def before_reduction(self, tensor: Any, reduction: str) -> Any:
        """What this rank gives to a ``reduction`` over the ranks: see `Accelerator.reduce`."""
        if reduction == "mean":
            return self.mean(tensor)
        if reduction == "sum":
            return _times(tensor, float(self._gradients.active.has_rows(self._comm.rank)))
        return tensor

    def _of(self, tensor: Any) -> float:
        """The weight of a mean. The last loss keeps its weight after the loop."""
        active = self._gradients.active
        if active.current is None and self._last is not None and tensor is self._last():
            return self._last_weight
        return active.weight(self._comm.rank)


def _times(tensor: Any, weight: float) -> Any:
    """The tensors times their weight; zeros, whatever they hold, where that is 0."""
    if weight == 1.0:
        return tensor
    return map_tensors(lambda t: t * weight if weight else torch.zeros_like(t), tensor)
