"""Collates sequences of different lengths, in few shapes if the device compiles for every shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import default_collate

from crosstrain.run import RUN
from crosstrain.utils.nested import same_sequence

IGNORED = -100  # the label that cross_entropy ignores by default
MASK = "attention_mask"
Fields = Mapping[Any, float] | Sequence[Any]


class PadCollate:
    """A collate_fn that pads the declared fields; see `pad_collate`."""

    def __init__(
        self, multiple_of: int, fields: Mapping[Any, float], max_length: int | None, everywhere: bool
    ) -> None:
        self._multiple = multiple_of
        self._fields = dict(fields)
        self._max_length = max_length
        self._everywhere = everywhere

    def __getstate__(self) -> dict[str, Any]:
        # A loader worker that is not forked has no run, so it gets the run's answer.
        return vars(self) | {"_everywhere": self._fixed()}

    def __call__(self, samples: list[Any]) -> Any:
        first = samples[0]
        if isinstance(first, Mapping):
            columns = {key: [sample[key] for sample in samples] for key in first}
            self._check(columns)
            if MASK in self._fields and MASK not in columns:
                columns[MASK] = self._masks(columns)
            return self._collate(columns)
        columns = {place: list(column) for place, column in enumerate(zip(*samples, strict=True))}
        self._check(columns)
        values = list(self._collate(columns).values())
        return same_sequence(first, values)

    def _check(self, columns: Mapping[Any, Any]) -> None:
        missing = [field for field in self._fields if field not in columns and field != MASK]
        if missing:
            raise ValueError(
                f"pad_collate: the samples have no field {missing[0]!r}; they have {list(columns)}. Name dict keys, "
                f"or positions in a tuple."
            )

    def _masks(self, columns: Mapping[Any, Any]) -> list[Tensor]:
        named = next(field for field in self._fields if field != MASK)
        return [torch.ones(len(sequence), dtype=torch.int64, device="cpu") for sequence in columns[named]]

    def _collate(self, columns: Mapping[Any, Any]) -> dict[Any, Any]:
        return {
            key: self._pad(key, column) if key in self._fields else _collated(key, column)
            for key, column in columns.items()
        }

    def _pad(self, key: Any, column: Sequence[Any]) -> Tensor:
        sequences = [torch.as_tensor(sequence) for sequence in column]
        longest = max(len(sequence) for sequence in sequences)
        length = self._length(key, longest)
        first = sequences[0]
        out = first.new_full((len(sequences), length, *first.shape[1:]), self._fields[key])
        for row, sequence in zip(out, sequences, strict=True):
            row[: len(sequence)] = sequence
        return out

    def _length(self, key: Any, longest: int) -> int:
        if self._max_length is not None and longest > self._max_length:
            raise ValueError(
                f"pad_collate: a sequence in {key!r} has length {longest}, more than max_length={self._max_length}. "
                f"Truncate in the data set, or raise max_length."
            )
        if not self._fixed():
            return longest
        if self._max_length is not None:
            return self._max_length
        if RUN.started and RUN.comm.world > 1 and not RUN.comm.averages:
            raise ValueError(
                "pad_collate: several hosts run one program, so their batches need one length: give max_length."
            )
        return -(-longest // self._multiple) * self._multiple

    def _fixed(self) -> bool:
        return self._everywhere or (RUN.started and RUN.comm.fixed_shapes)


def pad_collate(
    multiple_of: int = 64, fields: Fields = (), max_length: int | None = None, everywhere: bool = False
) -> PadCollate:
    """A ``collate_fn`` for samples whose ``fields`` are sequences of different lengths.

    Args:
        multiple_of: on XLA, which compiles for every length, lengths are rounded up to a multiple of this; elsewhere a batch
            is as long as its longest sequence.
        fields: dict keys or positions in a tuple, each with its padding value. In a plain list labels get -100, which losses
            ignore, and everything else 0. If ``"attention_mask"`` is a field and the samples have none, it is made: 1 for
            values, 0 for padding.
        max_length: on XLA all batches get this length.
        everywhere: pad on every device as on XLA.

    Other fields are collated as torch does.

    Raises ValueError for wrong arguments; the function that is returned raises it for fields that the samples lack, and for
    sequences longer than ``max_length``.
    """
    if multiple_of < 1:
        raise ValueError(f"pad_collate: multiple_of={multiple_of} must be 1 or more")
    values = dict(fields) if isinstance(fields, Mapping) else {name: _padding(name) for name in fields}
    if not set(values) - {MASK}:
        raise ValueError("pad_collate needs the fields to pad: dict keys, or positions in a tuple")
    return PadCollate(multiple_of, values, max_length, everywhere)


def _collated(key: Any, column: Sequence[Any]) -> Any:
    try:
        return default_collate(list(column))
    except RuntimeError as error:
        raise ValueError(
            f"pad_collate: the samples' {key!r} cannot be put together ({error}). If they differ in length, add "
            f"{key!r} to fields."
        ) from None


def _padding(name: Any) -> float:
    return IGNORED if isinstance(name, str) and name in ("label", "labels", "target", "targets") else 0
