"""One list of the ranks' parts of what holds more than tensors, without rows that are not real."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy
from torch import Tensor

from crosstrain.comm.types import HOST
from crosstrain.data.sharding import Counts
from crosstrain.utils.nested import every_leaf, map_leaves


class Column(NamedTuple):
    """A tensor, an array or a list of values, which may have a row for each sample."""

    value: Any

    @property
    def size(self) -> int | None:
        """Its length, None for a scalar."""
        return len(self.value) if _has_rows(self.value) else None

    @property
    def array(self) -> bool:
        return _is_array(self.value)

    @property
    def on_device(self) -> bool:
        return isinstance(self.value, Tensor) and self.value.device.type != HOST.type

    @property
    def name(self) -> str:
        kind = type(self.value).__name__
        if self.array:
            return f"a {kind} of shape {tuple(self.value.shape)}"
        return f"a {kind} of {len(self.value)} items"


def columns(part: Any) -> list[Column]:
    """The values nested in one rank's part that `in_list` cuts by row."""
    return [Column(leaf) for leaf in every_leaf(part, _is_column) if _is_array(leaf) or _has_rows(leaf)]


def in_list(parts: list[Any], counts: Counts | None, scalars: list[bool]) -> list[Any]:
    """One list of the ranks' rows; a part that has no rows is one entry, of those ranks for which ``scalars`` says so."""
    joined: list[Any] = []
    for rank, part in enumerate(parts):
        kept = _real(part, rank, counts)
        if _has_rows(kept):
            joined.extend(kept)
        elif isinstance(kept, Mapping) or counts is None or scalars[rank]:
            joined.append(kept)
    return joined


def _real(part: Any, rank: int, counts: Counts | None) -> Any:
    """A rank's part without the rows, at any depth, that only complete or fill its batch."""
    if counts is None or not counts.rows[rank]:
        return part
    held, real = counts.rows[rank], counts.real[rank]

    def cut(leaf: Any) -> Any:
        by_row = _has_rows(leaf) and len(leaf) % held == 0
        return leaf[: len(leaf) // held * real] if by_row else leaf

    return map_leaves(cut, part, _is_column)


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, numpy.ndarray))


def _has_rows(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (_is_array(value) and bool(value.ndim))


def _is_column(value: Any) -> bool:
    """Whether a list or tuple has a value for each row, rather than values of different types, containers among them."""
    if not isinstance(value, (list, tuple)):
        return False
    kinds = {type(item) for item in value}
    if isinstance(value, list):
        kinds.discard(type(None))  # a row without a value
    return len(kinds) < 2 or not any(isinstance(item, (Tensor, Mapping, list, tuple)) for item in value)
