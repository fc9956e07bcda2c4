"""The batches that an observed run hands out: few of them and, if asked for, with every row twice.

So that nothing else changes, random numbers that are drawn for the rows of a doubled batch are there twice as well, and
dropout is off.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from crosstrain.data.rows import NotByRow, join_rows
from torch import Tensor

from crosstrain_verify.emulation import row_by_row
from crosstrain_verify.emulation.eager_compile import scripted_as
from crosstrain_verify.tracing.batches import LoaderWatch, checksum

PASSES = 2  # of each loader that give BATCHES batches; later passes give one
BATCHES = 4
DRAWING = ("rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "bernoulli", "normal")


class ObservedBatches:
    """Hands out batches, doubled if asked for, and knows the current one.

    Args:
        doubled: each row of the first batch of a pass is there twice.
        seconds: after this time the next batch ends the run by `stop`.

    Attributes:
        rows: of the current batch, if it is the first of its pass and can be doubled; else 0.
        passes: how many passes have begun.
    """

    def __init__(self, watch: LoaderWatch, doubled: bool, seconds: float, stop: Callable[[], None]) -> None:
        self.rows = self.passes = 0
        self._watch = watch
        self._doubled = doubled
        self._end = time.monotonic() + seconds
        self._stop = stop
        self._begun: Counter[int] = Counter()  # by loader

    def install(self, *, few: bool) -> None:
        """Replace what the watch hands out, and torch's random functions. few: end a pass after a few batches."""
        self._watch.alter = self._alter
        self._watch.pass_ended = self._pass_ended
        if few:
            self._watch.ends.append(self._ends_pass)
        if self._doubled:
            for name in DRAWING:
                real = getattr(torch, name)
                setattr(torch, name, scripted_as(self._drawing_twice(real), real))
        row_by_row.without_dropout()

    @property
    def reading(self) -> bool:
        """Whether the next batch is being read: what is computed then concerns single samples."""
        return self._watch.source is not None

    def _ends_pass(self, loader: Any, given: int) -> bool:
        number = self._watch.number(loader)
        self._begun[number] += given == 0
        return given >= (BATCHES if self._begun[number] <= PASSES else 1)

    def _pass_ended(self) -> None:
        self.rows = 0

    def _alter(self, batch: Any, first: bool, loader: Any) -> Any:
        if time.monotonic() > self._end:
            self._stop()
        self.rows = 0
        if not first:
            return batch
        self.passes += 1
        rows, digest = checksum(batch)  # where there is none, some parts may have no rows
        if not rows or rows == 1 or digest is None:
            return batch
        try:
            twice = join_rows([batch, batch])
        except NotByRow:
            return batch
        self.rows = 2 * rows if self._doubled else rows
        return twice if self._doubled else batch

    def _drawing_twice(self, real: Any) -> Any:
        """A random function that draws for the rows of a doubled batch what it would have drawn for the batch itself, twice."""

        @functools.wraps(real)
        def draw(*args: Any, **kwargs: Any) -> Any:
            smaller = self._for_half(args) if self.rows and not self.reading else None
            if smaller is None:
                return real(*args, **kwargs)
            half = real(*smaller, **kwargs)
            return torch.cat([half, half])

        return draw

    def _for_half(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The arguments that ask for half as many rows; None if no argument asks for the rows of the batch."""
        rows, half = self.rows, self.rows // 2
        for place, argument in enumerate(args):
            smaller: Any = None
            if isinstance(argument, Tensor) and argument.shape[:1] == (rows,):
                smaller = argument[:half]
            elif isinstance(argument, tuple) and argument[:1] == (rows,):
                smaller = (half, *argument[1:])
            elif place == 0 and isinstance(argument, int) and argument == rows:
                smaller = half
            if smaller is not None:
                return *args[:place], smaller, *args[place + 1 :]
        return None
