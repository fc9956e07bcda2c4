"""A standard output that remembers where in the run each line was printed, and by which line of the script."""

from __future__ import annotations

import io
import os
from collections.abc import Callable

from crosstrain_verify.records.traces import Printed
from crosstrain_verify.tracing.script_lines import place

LIMIT = 100_000  # lines; a script that prints more is compared all the same, without their places


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
