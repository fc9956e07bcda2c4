"""A standard output that records when each line was printed, and by which line of the script."""

from __future__ import annotations

import io
import os
from collections.abc import Callable

from crosstrain_verify.records.traces import Printed
from crosstrain_verify.tracing.script_lines import place

LIMIT = 100_000  # lines whose places are recorded; the lines of a script that prints more are still compared


class Output(io.TextIOWrapper):
    """Standard output, written to a file descriptor as `python` would write it."""

    def __init__(self, descriptor: int) -> None:
        raw = os.fdopen(descriptor, "wb", closefd=False)
        super().__init__(raw, encoding="utf-8", errors="backslashreplace")
        self.printed: list[Printed] = []
        self.now: Callable[[], tuple[int, int]] = lambda: (0, 0)  # events and batches so far

    def write(self, text: str) -> int:
        lines = text.count("\n")
        if lines and len(self.printed) < LIMIT:
            self.printed += [Printed(*self.now(), place())] * lines
        return super().write(text)
