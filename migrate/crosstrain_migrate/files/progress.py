"""The progress of a run: one line on a terminal, cleared before anything else is printed."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TextIO, TypeVar

T = TypeVar("T")

_AFTER = 0.5  # seconds: a shorter run needs no line
_BETWEEN = 0.1


class Progress:
    """Writes to `stream` if that is a terminal; otherwise it does nothing."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self.is_shown = self._stream.isatty()
        self._next = time.monotonic() + _AFTER
        self._written = False

    def say(self, text: str) -> None:
        """Writes the line again, unless it was written a moment ago."""
        if not self.is_shown or (now := time.monotonic()) < self._next:
            return
        self._next = now + _BETWEEN
        self._written = True
        print(f"\r\x1b[K{text}", end="", file=self._stream, flush=True)

    def over(self, items: Iterable[T], text: str) -> Iterator[T]:
        """`items`, counted in `text`: "{} files read"."""
        for number, item in enumerate(items):
            self.say(text.format(number))
            yield item

    def clear(self) -> None:
        if self._written:
            print("\r\x1b[K", end="", file=self._stream, flush=True)
            self._written = False
