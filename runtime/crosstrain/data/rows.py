"""Cutting and joining collated batches by row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from crosstrain.utils.nested import every_leaf, is_column, map_leaves, rows_of


class NotByRow(ValueError):
    """The batch cannot be cut or joined by row."""


def cut_rows(batch: Any, lo: int, hi: int) -> Any:
    """Rows lo to hi (exclusive) of every tensor and every list of plain values; values without rows are kept whole.

    Raises NotByRow where parts of the batch differ in their number of rows.
    """
    n = rows_of(batch)

    def part(leaf: Any) -> Any:
        if isinstance(leaf, Tensor) and leaf.ndim == 0:
            return leaf
        if isinstance(leaf, Tensor) or is_column(leaf):
            if len(leaf) != n:
                raise NotByRow(f"one part of the batch has {len(leaf)} rows and another {n}")
            return leaf[lo:hi]
        return leaf

    return map_leaves(part, batch, is_column)


def join_rows(batches: list[Any]) -> Any:
    """One batch with the rows of all; NotByRow where shapes, types or values without rows differ."""
    if len(batches) == 1:
        return batches[0]
    columns = [every_leaf(batch, is_column) for batch in batches]
    if len({len(column) for column in columns}) > 1:
        raise NotByRow("the batches differ in structure")
    joined = iter([_join(list(leaves)) for leaves in zip(*columns, strict=True)])
    return map_leaves(lambda _: next(joined), batches[0], is_column)


def _join(leaves: list[Any]) -> Any:
    first = leaves[0]
    if isinstance(first, Tensor) and first.ndim:
        kinds = {(type(leaf), leaf.dtype, leaf.shape[1:]) for leaf in leaves if isinstance(leaf, Tensor)}
        if len(kinds) > 1 or not all(isinstance(leaf, Tensor) for leaf in leaves):
            raise NotByRow("tensors of the batches differ in shape or type")
        return torch.cat(leaves)
    if is_column(first):
        return type(first)(value for leaf in leaves for value in leaf)
    if isinstance(first, Tensor) or any(type(leaf) is not type(first) or leaf != first for leaf in leaves):
        raise NotByRow("the batches carry different values that belong to no row")
    return first
