"""Puts the rows of a batch into another order."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from crosstrain_verify.tracing.batches import checksum


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
