"""Permutes the first batch of each pass and records what is gathered for it (see `judging.rows`)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from crosstrain.utils import checks
from crosstrain.utils.nested import leaves
from torch import Tensor

from crosstrain_verify.records.operands import Operand, permutation
from crosstrain_verify.tracing.batches import LoaderWatch, checksum


class Permuting:
    """Records what `gather_for_metrics` gets when a line first calls it. permute: permute the batches, too."""

    def __init__(self, *, permute: bool) -> None:
        self.kept: list[Operand] = []
        self._permute = permute
        self._rows = 0  # of the current batch, if it is the first of its pass and can be permuted

    def install(self, watch: LoaderWatch) -> None:
        """Replace what `watch` hands out, and `Accelerator.gather_for_metrics`."""
        from crosstrain.accelerator import Accelerator

        watch.alter = self._alter
        kind: Any = Accelerator
        real: Callable[..., Any] = kind.gather_for_metrics

        @functools.wraps(real)
        def gather_for_metrics(accelerator: Any, input_data: Any, *args: Any, **kwargs: Any) -> Any:
            if self._rows and checks.first_use("permuted"):
                self._keep(input_data)
            return real(accelerator, input_data, *args, **kwargs)

        kind.gather_for_metrics = gather_for_metrics

    def _alter(self, batch: Any, first: bool, loader: Any) -> Any:
        self._rows = separable_rows(batch) if first else 0
        return permuted(batch, list(permutation(self._rows))) if self._rows and self._permute else batch

    def _keep(self, data: Any) -> None:
        place = checks.here()
        for leaf in leaves(data):
            if isinstance(leaf, Tensor) and self._rows in leaf.shape[1:] and not leaf.is_complex():
                values = leaf.detach().cpu().double().numpy().copy()
                self.kept.append(Operand(place.file, place.line, self._rows, values))


def separable_rows(batch: Any) -> int:
    """The number of rows of a batch that `permuted` can reorder; 0 if there are none, or only one."""
    rows, digest = checksum(batch)
    return rows if rows and rows > 1 and digest is not None else 0


def permuted(batch: Any, order: list[int]) -> Any:
    """The batch with its rows in another order. It must be one that `checksum` can read."""
    if isinstance(batch, Tensor):
        return batch[order]
    if isinstance(batch, dict):
        changed = {key: permuted(value, order) for key, value in batch.items()}
        batch = batch.copy()
        batch.update(changed)
        return batch
    if batch and all(isinstance(item, (str, int, float, bytes)) for item in batch):
        return type(batch)(batch[index] for index in order)
    parts = [permuted(item, order) for item in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
