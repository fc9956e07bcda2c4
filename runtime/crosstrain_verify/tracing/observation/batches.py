"""The batches that an observed run hands out: few of them and, if asked for, with altered rows.

If a batch's rows are permuted, the rows of a tensor with a row for each sample are permuted, too. If every row is there
twice, a mean over the batch stays the same and a sum doubles. If the first half of the rows replaces the second, rows that
depend on each other change. So that nothing else changes, random numbers that are drawn for the rows of the current batch
follow its rows, and dropout is off.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from crosstrain_verify.emulation.eager_compile import scripted_as
from crosstrain_verify.records.observations import half
from crosstrain_verify.records.permutation import permutation
from crosstrain_verify.tracing.batches import LoaderWatch
from crosstrain_verify.tracing.permuting import permuted, separable_rows

Altered = Literal["seen", "permuted", "doubled", "halved"]
PASSES = 2  # of each loader that give BATCHES batches; later passes give one
BATCHES = 4
DRAWING = ("rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "bernoulli", "normal")
DROPPING = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


class ObservedBatches:
    """Hands out batches, altered if asked for, and knows the current one.

    Args:
        altered: how the first batch of each pass is altered; "seen" leaves it as it is.
        seconds: after this time the next batch ends the run by `stop`.

    Attributes:
        rows: of the current batch, if it is the first of its pass and can be altered; else 0.
        turn: counts the passes.
        loader: the one that gave the current batch.
        given: called for each batch.
    """

    def __init__(
        self, altered: Altered, watch: LoaderWatch, seconds: float, stop: Callable[[], None]
    ) -> None:
        self.rows = self.turn = 0
        self.loader: Any = None
        self.given: Callable[[], object] = lambda: None
        self._altered = altered
        self._watch = watch
        self._end = time.monotonic() + seconds
        self._stop = stop
        self._passes: dict[int, int] = {}

    def install(self, *, few: bool) -> None:
        """Replace what the watch hands out, and torch's random functions. few: end a pass after a few batches."""
        self._watch.alter = self._alter
        self._watch.pass_ended = self._pass_ended
        if few:
            self._watch.ends_pass = self._ends_pass
        for name in DRAWING:
            real = getattr(torch, name)
            setattr(torch, name, scripted_as(self._following_rows(real), real))
        for name in DROPPING:
            setattr(torch.nn.functional, name, _kept)

    @property
    def reading(self) -> bool:
        """Whether the next batch is being read: what is computed then concerns single samples."""
        return self._watch.source is not None

    def _ends_pass(self, loader: Any, given: int) -> bool:
        number = self._watch.number(loader)
        if given == 0:
            self._passes[number] = self._passes.get(number, 0) + 1
        return given >= (BATCHES if self._passes.get(number, 0) <= PASSES else 1)

    def _pass_ended(self) -> None:
        self.rows = 0

    def _alter(self, batch: Any, first: bool, loader: Any) -> Any:
        if time.monotonic() > self._end:
            self._stop()
        self.rows = 0  # no draw for this batch is altered
        order: list[int] = []
        if first and (rows := separable_rows(batch)):
            order = order_of(self._altered, rows)
            batch = batch if self._altered == "seen" else permuted(batch, order)
        self.rows, self.loader = len(order), loader
        self.turn += first
        self.given()
        return batch

    def _following_rows(self, real: Any) -> Any:
        """A random function that draws for each altered row what it would have drawn for the row itself."""

        @functools.wraps(real)
        def draw(*args: Any, **kwargs: Any) -> Any:
            if self._altered == "seen" or self.rows == 0 or self.reading:
                return real(*args, **kwargs)
            if self._altered != "doubled":
                drawn = real(*args, **kwargs)
                return drawn[order_of(self._altered, self.rows)] if _has_rows(drawn, self.rows) else drawn
            smaller = self._for_half(args)
            if smaller is None:
                return real(*args, **kwargs)
            half = real(*smaller, **kwargs)
            return torch.cat([half, half])

        return draw

    def _for_half(self, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """The arguments that ask for half as many rows; None if no argument asks for the rows of the batch."""
        rows, half = self.rows, self.rows // 2
        changed: list[Any] = []
        found = False
        for argument in args:
            if not found and isinstance(argument, Tensor) and _has_rows(argument, rows):
                argument, found = argument[:half], True
            elif not found and isinstance(argument, (tuple, torch.Size)) and argument[:1] == (rows,):
                argument, found = (half, *argument[1:]), True
            elif not found and isinstance(argument, int) and argument == rows and not changed:
                argument, found = half, True
            changed.append(argument)
        return tuple(changed) if found else None


def order_of(altered: Altered, rows: int) -> list[int]:
    """For each row of the altered batch, the number of the original row."""
    whole = range(rows)
    return {
        "seen": list(whole),
        "permuted": list(permutation(rows)),
        "doubled": [*whole, *whole],
        "halved": [row % half(rows) for row in whole],
    }[altered]


def _has_rows(value: Any, rows: int) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0 and value.shape[0] == rows


def _kept(*args: Any, **kwargs: Any) -> Any:
    """Replaces dropout: returns its input."""
    return args[0] if args else kwargs["input"]
