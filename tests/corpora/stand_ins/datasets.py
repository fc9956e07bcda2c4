"""A stand-in for `datasets`: tables of columns, and two made-up data sets."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

ROWS = {"train": 50, "validation": 23, "test": 17}
_TEXT = "the a one red old small fast green house dog river runs sees takes finds again today"
_WORDS = _TEXT.split()


class Dataset:
    """Rows with named columns."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self._columns = columns

    @classmethod
    def from_dict(cls, columns: dict[str, list[Any]]) -> Dataset:
        return cls(dict(columns))

    @classmethod
    def from_list(cls, rows: list[dict[str, Any]]) -> Dataset:
        return cls({name: [row[name] for row in rows] for name in (rows[0] if rows else {})})

    @property
    def column_names(self) -> list[str]:
        return list(self._columns)

    @property
    def features(self) -> dict[str, Any]:
        return dict.fromkeys(self._columns)

    @property
    def num_rows(self) -> int:
        return len(self)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values()), []))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return self._columns[key]
        if isinstance(key, slice):
            return {name: values[key] for name, values in self._columns.items()}
        return {name: values[key] for name, values in self._columns.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[index] for index in range(len(self)))

    def select(self, indices: Any) -> Dataset:
        chosen = [int(index) for index in indices]
        return Dataset({name: [values[i] for i in chosen] for name, values in self._columns.items()})

    def filter(self, function: Callable[..., bool], input_columns: str) -> Dataset:
        return self.select(i for i, value in enumerate(self._columns[input_columns]) if function(value))

    def map(
        self, function: Callable[..., Any], batched: bool = False, remove_columns: Any = (), **_: Any
    ) -> Dataset:
        assert batched, "the stand-in maps batches"
        made = dict(function(dict(self._columns)))
        kept = {name: values for name, values in self._columns.items() if name not in remove_columns}
        return Dataset(kept | made)

    def rename_column(self, old: str, new: str) -> Dataset:
        return Dataset({new if name == old else name: values for name, values in self._columns.items()})

    def unique(self, column: str) -> list[Any]:
        return sorted(set(self._columns[column]))


class DatasetDict(dict[str, Dataset]):
    """Splits by name."""

    def map(self, *args: Any, **kwargs: Any) -> DatasetDict:
        return DatasetDict({name: split.map(*args, **kwargs) for name, split in self.items()})

    def filter(self, *args: Any, **kwargs: Any) -> DatasetDict:
        return DatasetDict({name: split.filter(*args, **kwargs) for name, split in self.items()})

    def rename_column(self, old: str, new: str) -> DatasetDict:
        return DatasetDict({name: split.rename_column(old, new) for name, split in self.items()})


def load_dataset(path: str, name: str | None = None, **_: Any) -> DatasetDict:
    """Sentence pairs with a label ("nyu-mll/glue"), or lines of text."""
    make = _pairs if "glue" in path else _lines
    return DatasetDict({split: make(count, random.Random(split)) for split, count in ROWS.items()})


def _sentence(source: random.Random) -> str:
    return " ".join(source.choices(_WORDS, k=source.randint(3, 12)))


def _pairs(count: int, source: random.Random) -> Dataset:
    rows = [(_sentence(source), _sentence(source), source.randint(0, 1)) for _ in range(count)]
    first, second, label = (list(column) for column in zip(*rows, strict=True))
    return Dataset({"sentence1": first, "sentence2": second, "label": label, "idx": list(range(count))})


def _lines(count: int, source: random.Random) -> Dataset:
    return Dataset({"text": [_sentence(source) if source.random() < 0.9 else "" for _ in range(1100)]})
