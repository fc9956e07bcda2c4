"""An iterator that tells whether it is exhausted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any


class Peekable:
    """An iterator that can be asked whether it is exhausted; only then does it read one item ahead."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._ahead: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._ahead.pop() if self._ahead else next(self._source)

    def exhausted(self) -> bool:
        if not self._ahead:
            self._ahead.extend(islice(self._source, 1))
        return not self._ahead

    def take_ahead(self) -> list[Any]:
        """The item that was read ahead, which is not given out any more; an empty list if there is none."""
        ahead, self._ahead = self._ahead, []
        return ahead
