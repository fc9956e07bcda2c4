"""Observes a run: records the values of the script's expressions, and whether their rows follow those of the batch.

`instrument` makes every expression that may matter report its value, with its place in the source. `recorder` keeps what
matters of it. `batches` hands out batches with other rows, so that what depends on the batch changes with it. `naming`
finds the place in the script, or the public name, of a function or class.
"""

from __future__ import annotations

import types
from pathlib import Path

from crosstrain_verify.records.observations import Observations
from crosstrain_verify.tracing.observation.batches import Altered, ObservedBatches
from crosstrain_verify.tracing.observation.instrument import Instrument
from crosstrain_verify.tracing.observation.naming import load_names
from crosstrain_verify.tracing.observation.recorder import ValueRecorder
from crosstrain_verify.tracing.tracer import Tracer

__all__ = ["Observation"]


class Observation:
    """Observes the files below ``folder`` in this process, and ends the run after ``seconds``."""

    def __init__(self, folder: Path, tracer: Tracer, altered: Altered, seconds: float) -> None:
        self._instrument = Instrument(folder)
        self._batches = ObservedBatches(altered, tracer.watch, seconds, tracer.stop)
        self._recorder = ValueRecorder(self._instrument.places, self._batches, self._instrument.covers)

    def install(self, *, few: bool) -> None:
        """Observe from now on. few: end each pass over a loader after a few batches."""
        load_names()
        self._batches.install(few=few)
        self._instrument.install(self._recorder.note)

    def compiled(self, source: bytes | str, filename: str) -> types.CodeType:
        """The instrumented code of the script, or of a notebook's cell."""
        return self._instrument.compiled(source, filename)

    def observations(self) -> Observations:
        """What was observed so far."""
        return self._recorder.observations()
