"""Inside a run that is observed: what each expression of the script stands for, and whether its rows follow the batch's.

`instrument` makes every expression that may matter tell its value, under its place in the source; `seen` keeps what
matters of it; `batches` hands out batches of another order or size, so that what follows from the batch shows it; `naming`
says where in the script, or under which public name, a function or a class is found.
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
    """Observes the files below `folder` in this process, for so many seconds."""

    def __init__(self, folder: Path, tracer: Tracer, altered: Altered, seconds: float) -> None:
        self._instrument = Instrument(folder)
        self._batches = ObservedBatches(altered, tracer.watch, seconds, tracer.stop)
        self._recorder = ValueRecorder(self._instrument.places, self._batches, self._instrument.covers)

    def install(self, *, few: bool) -> None:
        """Look from now on. few: end each pass over a loader after some batches."""
        load_names()
        self._batches.install(few=few)
        self._instrument.install(self._recorder.note)

    def compiled(self, source: bytes | str, filename: str) -> types.CodeType:
        """The code of the script, or of a notebook's cell."""
        return self._instrument.compiled(source, filename)

    def observations(self) -> Observations:
        """What was seen until now."""
        return self._recorder.observations()
