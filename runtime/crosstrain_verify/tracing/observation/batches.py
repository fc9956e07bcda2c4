"""Batches as an observed run hands them out: few, and, where that is asked for, in another order or twice as large.

What follows from the rows of a batch follows their order: a tensor with a row for each sample has its rows permuted when
the batch's are; rows that are measured by each other change when the first half of them stands in the place of the second,
too. A mean over the batch stays the same when every row is there twice; a sum is twice as large. So that
nothing else changes, random numbers drawn for the rows of the batch in hand follow the rows, too, and dropout is off.
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
from crosstrain_verify.records.operands import permutation
from crosstrain_verify.tracing.batches import LoaderWatch
from crosstrain_verify.tracing.permuting import permuted, separable_rows

Altered = Literal["seen", "permuted", "doubled", "halved"]
PASSES = 2  # of each loader from which several batches are read; later ones give one
BATCHES = 4
DRAWING = ("rand", "randn", "rand_like", "randn_like", "randint", "randint_like", "bernoulli", "normal")
DROPPING = ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")


class ObservedBatches:
    """The batch in hand: of `rows` rows if it is the first of its pass, else 0; given by loader number `loader`.

    turn: counts the first batches. stop: ends the run, when it has taken so many seconds that no other batch should follow.
    """

    def __init__(
        self, altered: Altered, watch: LoaderWatch, seconds: float, stop: Callable[[], None]
    ) -> None:
        self.rows = self.turn = 0
        self.loader: Any = None
        self.given: Callable[[], object] = lambda: None  # told of each batch
        self._altered = altered
        self._watch = watch
        self._end = time.monotonic() + seconds
        self._stop = stop
        self._passes: dict[int, int] = {}

    def install(self, *, few: bool) -> None:
        """Hand batches out so. few: end a pass after some."""
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
        """Whether the next batch is being read: what happens then is about single samples."""
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
        """What draws a tensor of random numbers draws for each row what it would have drawn for it."""

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
        """The arguments that ask for half as many rows; None where none of them asks for the rows of the batch."""
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
    """Which row of the batch stands at each place."""
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
    """In the place of dropout."""
    return args[0] if args else kwargs["input"]
