"""One list of the ranks' parts of what holds more than tensors, without rows that are not real."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from crosstrain.comm.types import HOST
from crosstrain.data.sharding import Counts
from crosstrain.utils.nested import fields_of, same_dataclass, same_mapping, same_sequence


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


def columns(part: Any) -> Iterator[Column]:
    """The values nested in one rank's part that `in_list` cuts by row."""
    if isinstance(part, Mapping):
        inner: Iterable[Any] = part.values()
    elif (fields := fields_of(part)) is not None:
        inner = fields.values()
    elif _is_structure(part):
        inner = part
    else:
        if _is_array(part) or _has_rows(part):
            yield Column(part)
        return
    for value in inner:
        yield from columns(value)


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
    if counts is None:
        return part
    if isinstance(part, Mapping):
        return same_mapping(part, {key: _real(value, rank, counts) for key, value in part.items()})
    if (fields := fields_of(part)) is not None:
        return same_dataclass(part, {name: _real(value, rank, counts) for name, value in fields.items()})
    if _is_structure(part):
        return same_sequence(part, [_real(value, rank, counts) for value in part])
    held = counts.rows[rank]
    if not _has_rows(part) or not held or len(part) % held:
        return part
    return part[: len(part) // held * counts.real[rank]]


def _is_array(value: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return isinstance(value, Tensor) or (numpy is not None and isinstance(value, numpy.ndarray))


def _has_rows(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or (_is_array(value) and bool(value.ndim))


def _is_structure(value: Any) -> bool:
    """Whether a list or tuple holds values of different types, containers among them, rather than one per row."""
    if not isinstance(value, (list, tuple)):
        return False
    kinds = {type(item) for item in value}
    if isinstance(value, list):
        kinds.discard(type(None))  # a row without a value
    return len(kinds) > 1 and any(isinstance(item, (Tensor, Mapping, list, tuple)) for item in value)
