"""Observes a run: records the numbers that the script's expressions stand for, to see how they depend on the batch.

`instrument` makes every expression that may be a number report its value, with its place in the source. `batches` hands out
batches in which every row is there twice, if asked for: a mean over the batch then stays the same, and a sum doubles.
"""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from crosstrain_verify.records.observations import Observations, Place
from crosstrain_verify.tracing.observation.batches import ObservedBatches
from crosstrain_verify.tracing.observation.instrument import Instrument
from crosstrain_verify.tracing.tracer import Tracer

__all__ = ["Observation"]

MOST = 2  # numbers of one expression that are recorded in a pass


class Observation:
    """Observes the files below ``folder`` in this process, and ends the run after ``seconds``.

    doubled: each row of the first batch of a pass is there twice.
    """

    def __init__(self, folder: Path, tracer: Tracer, *, doubled: bool, seconds: float) -> None:
        self._instrument = Instrument(folder)
        self._batches = ObservedBatches(tracer.watch, doubled, seconds, tracer.stop)
        self._numbers: dict[Any, dict[int, list[float]]] = {}

    def install(self, *, few: bool) -> None:
        """Observe from now on. few: end each pass over a loader after a few batches."""
        self._batches.install(few=few)
        self._instrument.install(self._note)

    def compiled(self, source: bytes | str, filename: str) -> types.CodeType:
        """The instrumented code of the script, or of a notebook's cell."""
        return self._instrument.compiled(source, filename)

    def observations(self) -> Observations:
        """What was observed so far."""
        numbers = {Place(*place): passes for place, passes in self._numbers.items()}
        return Observations(sorted(self._instrument.files), numbers)

    def _note(self, place: Any, value: Any) -> Any:
        """Record what an expression stands for if it is a number and may depend on the current batch; return it."""
        if self._batches.rows and not self._batches.reading and _is_number(value):
            found = self._numbers.setdefault(place, {}).setdefault(self._batches.passes, [])
            if len(found) < MOST:
                found.append(float(value.detach()))
        return value


def _is_number(value: Any) -> bool:
    """Whether it is a tensor of one real number that can be read. type(): a lazy proxy must not load its object."""
    return (
        issubclass(type(value), Tensor)
        and value.dim() == 0
        and not value.is_complex()
        and value.device.type != "meta"
        and not torch._C._functorch.is_functorch_wrapped_tensor(value)
    )
