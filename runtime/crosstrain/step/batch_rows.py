"""The rows of the batch in hand, over the ranks: gathered, counted, and weighted where ranks have different numbers."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from crosstrain.comm.protocol import Comm
from crosstrain.data import metrics
from crosstrain.step.window import Gradients
from crosstrain.utils import operations
from crosstrain.utils.nested import map_tensors

if TYPE_CHECKING:
    from crosstrain.data.active_loaders import ActiveLoaders


class BatchRows:
    """This rank's rows of the batch in hand, among those of all ranks, and the weight of a mean over them.

    The batch in hand is that of the innermost loop over a prepared loader. The weight is 1 where every rank has as
    many rows; with `even_batches="weighted"` it is this rank's rows times the number of ranks, divided by all rows.
    """

    def __init__(self, comm: Comm, gradients: Gradients) -> None:
        self.comm = comm
        self._gradients = gradients
        self._last: weakref.ref[Tensor] | None = None  # the loss that was weighted last
        self._last_weight = 1.0

    @property
    def active(self) -> ActiveLoaders:
        """The loops over prepared loaders that are running."""
        return self._gradients.active

    def apply(self, loss: Tensor, given: Tensor, loss_reduction: str) -> Tensor:
        """``loss`` times its weight; ``given`` is the tensor that the script has of it, and may reduce later."""
        weight = self.active.weight(self.comm.rank)
        self._last, self._last_weight = weakref.ref(given), weight
        if loss_reduction == "sum":
            weight = float(self.comm.world) if weight else 0.0
        return loss if weight == 1.0 else loss * weight

    def before_reduction(self, tensor: Any, reduction: str) -> Any:
        """What this rank gives to a ``reduction`` over the ranks: see `Accelerator.reduce`."""
        if reduction == "mean":
            return _times(tensor, self._of(tensor) if self.comm.averages else 1.0)
        if reduction == "sum":
            return _times(tensor, float(self.active.has_rows(self.comm.rank)))
        return tensor

    def _of(self, tensor: Any) -> float:
        """The weight of a mean. The last loss keeps its weight after the loop."""
        active = self._gradients.active
        if active.current is None and self._last is not None and tensor is self._last():
            return self._last_weight
        return active.weight(self.comm.rank)


class BatchRowMembers:
    """The members of an Accelerator that gather and reduce values over the ranks."""

    _batch_rows: BatchRows

    def gather(self, tensor: Any) -> Any:
        """Concatenate every rank's tensors along dimension 0, in rank order, on every rank (collective).

        ``tensor`` is a tensor or a nested structure of tensors, with the same shapes on every rank (see
        `pad_across_processes`). With P processes a tensor of n rows becomes one of P * n rows, and a 0-d tensor one of
        shape (P,). With one process, ``tensor`` is returned as it is. Raises TypeError for anything but tensors.
        """
        return operations.gather(tensor)

    def gather_for_metrics(self, input_data: Any, use_gather_object: bool = False) -> Any:
        """`gather` without the rows that only complete an uneven batch (collective).

        In the loop over a prepared loader, dimension 0 of a tensor must be this process's rows of the batch; k times
        as many (k rows per sample, those of one sample next to each other); or one value (a scalar, or shape [1]), of
        which the result has one per process. Over one pass of a loader that drops nothing, exactly N rows come out for
        N samples, in the order of the data set. Outside of every loop this is `gather`.

        ``input_data`` is a tensor or a nested structure of tensors. Of anything else, and with ``use_gather_object``, the
        result is one list: the processes' lists are joined, and any other object is an entry, without the rows in it that
        only complete a batch. With one device, ``input_data`` is returned as it is.

        Raises RuntimeError on every process for a tensor of another size; in the loop over an unprepared loader inside
        that over a prepared one; and after a loop for rows collected in it, if some of them only complete a batch. Use
        `gather` or `reduce` for these.
        """
        rows = self._batch_rows
        return metrics.gather_for_metrics(input_data, rows.active, rows.comm, use_gather_object)

    def reduce(self, tensor: Any, reduction: str = "sum", scale: float = 1.0) -> Any:
        """The "sum", "mean", "max" or "min" over the ranks of each tensor, times ``scale``, on every rank.

        ``tensor`` is a tensor, a Python number or a nested structure of them, with the same shapes on every rank; the
        result has new tensors of the same shapes. In the loop over a "weighted" loader, "mean" weights each rank's
        tensors as `backward` does, so that the mean of the ranks' row means is the mean over all rows; the last loss
        keeps its weight after the loop. In "sum", a rank whose batch holds only filler rows counts as zero. Python
        numbers are never weighted, because they usually come from several steps.

        Raises ValueError for another reduction.
        """
        return operations.reduce(self._batch_rows.before_reduction(tensor, reduction), reduction, scale)

    def pad_across_processes(
        self, tensor: Any, dim: int = 0, pad_index: float = 0, pad_first: bool = False
    ) -> Any:
        """Pad dimension ``dim`` of each tensor to its largest size over the ranks (collective).

        The padding has the value ``pad_index`` and comes after the values, or with ``pad_first`` before them.
        ``tensor`` is a tensor or a nested structure of tensors; those without this dimension, and those of equal sizes,
        are returned as they are. Raises TypeError for anything but tensors, DistributedOperationException where other
        dimensions differ.
        """
        return operations.pad_across_processes(tensor, dim, pad_index, pad_first)


def _times(tensor: Any, weight: float) -> Any:
    """The tensors times their weight; zeros, whatever they hold, where that is 0."""
    if weight == 1.0:
        return tensor
    return map_tensors(lambda t: t * weight if weight else torch.zeros_like(t), tensor)
