"""What a traced run leaves behind: one folder per rank, read and written without torch."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from crosstrain_verify.records import journal, observations, operands

TRACE_FILE = "trace.json"
WEIGHTS_FILE = "weights.npy"
STDOUT_FILE = "stdout.txt"
STDERR_FILE = "stderr.txt"
STACK_FILE = "stack.txt"
ROWS_FILE = "rows.npz"
SEEN_FILE = "seen.npz"
CHECKS_FILE = "checks.jsonl"  # the runtime's journal
# Some versions of torch greet on standard output when processes meet.
OF_GLOO = re.compile(r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks")
HUNG_FILE = "hung.json"  # beside the ranks' folders, where a notebook's own process saw them hang
STEPS_FILE = "steps"  # optimizer steps so far, 8 bytes, while the run goes on

# finished: the script ended by itself; stopped: ended after the steps asked for; crashed: an exception or an
# exit code; unfinished: nothing was written, the process was ended from outside.
Ending = Literal["finished", "stopped", "crashed", "unfinished"]


@dataclass(frozen=True)
class Event:
    """One thing that training did, in order.

    kind "loss": `values` is (the sum of what was handed to backward,); `index` is 0.
    kind "step": `values` is (gradient norm, norm of the weights before the step, learning rate of group 0,
    1, ...); `index` is the optimizer's, counted by first step.
    place: the script's line, as "file:line:function".
    """

    kind: Literal["loss", "step"]
    index: int
    values: tuple[float, ...]
    place: str = ""


@dataclass(frozen=True)
class Batch:
    """One batch that a loader gave. `loader`: its number, counted by first use; `at`: events before it.

    rows: those that belong to the pass (not completion or filler); digest: a checksum of these rows that
    does not depend on their order, so that the checksums of shares add up (mod 2**64); None: unknown. first:
    whether a pass over the loader begins with it. width: bytes of a row, 0 if unknown; batches that are
    padded to their longest sample have rows of other widths when they are shared.
    """

    loader: int
    at: int
    rows: int | None
    digest: int | None
    first: bool
    place: str = ""
    width: int = 0


@dataclass(frozen=True)
class Printed:
    """Where in the run a line was printed: after `events` events and `batches` batches, by `place`."""

    events: int
    batches: int
    place: str


@dataclass(frozen=True)
class Parameter:
    """One parameter of one optimizer at the end of the run.

    moved: the 2-norm of final minus first value. signal: the largest share, over the steps, that its gradient
    had in the norm of all gradients (0.0: it never had one). epsilon: the machine epsilon of its dtype. steps: those
    of its optimizer, and trained: in how many of them it had a gradient, be it zero.
    """

    name: str
    shape: tuple[int, ...]
    epsilon: float
    moved: float
    signal: float
    trained: int = 0
    steps: int = 0


@dataclass(frozen=True)
class XlaCounts:
    """What XLA did: graphs compiled by each optimizer step and in between (evaluation), values read one by one,
    operations left to the CPU.
    """

    compiled: tuple[int, ...]
    between: int
    reads: int
    fallbacks: dict[str, int]


@dataclass(frozen=True)
class RankTrace:
    """One rank of one run. `weights`: all parameters in order, flat, float64 (exact up to fp64).

    printed: one entry per line of `lines`, as far as the script printed them itself. written: files that
    it opened for writing, and whether as something else than text. draws: training drew random numbers. statistics: it used batch statistics.
    redrew: a run that draws share by share drew again in a backward pass, where it cannot.
    scale: the largest loss scale of mixed precision, 0.0 without. checks: those that the runtime made.
    gathered: where a run is looked at for its rows, the tensors that may have them elsewhere. observations: of a run that is observed. xla: None where it trained without.
    asked: see `emulated`. joined, spawned: see `launcher`.
    """

    ending: Ending
    events: tuple[Event, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    loss_epsilon: float = 0.0
    error: str = ""
    time_ns: int = 0
    weights: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    lines: tuple[str, ...] = ()
    stderr: str = ""
    stack: str = ""
    batches: tuple[Batch, ...] = ()
    printed: tuple[Printed, ...] = ()
    written: dict[str, bool] = field(default_factory=dict)
    draws: bool = False
    statistics: bool = False
    redrew: bool = False
    scale: float = 0.0
    checks: tuple[journal.Check, ...] = ()
    gathered: tuple[operands.Operand, ...] = ()
    observations: observations.Observations | None = None
    xla: XlaCounts | None = None
    asked: tuple[str, ...] = ()
    joined: int = 0
    spawned: int = 0

    def events_of(self, kind: Literal["loss", "step"]) -> list[Event]:
        """The events of one kind, in order."""
        return [event for event in self.events if event.kind == kind]

    @property
    def steps(self) -> int:
        """Optimizer steps that were executed and recorded."""
        return len(self.events_of("step"))

    @property
    def epsilon(self) -> float:
        """Machine epsilon of the coarsest dtype that took part; 0.0 where nothing was recorded."""
        return max([self.loss_epsilon, *(parameter.epsilon for parameter in self.parameters)])


def write(folder: Path, trace: RankTrace) -> None:
    """Write a rank's trace; the file `trace.json` appears last and whole."""
    np.save(folder / WEIGHTS_FILE, trace.weights)
    if trace.gathered:
        operands.write(folder / ROWS_FILE, trace.gathered)
    if trace.observations is not None:
        observations.write(folder / SEEN_FILE, trace.observations)
    data = asdict(replace(trace, gathered=(), observations=None))
    for name in ("weights", "lines", "stderr", "stack", "checks", "gathered", "observations"):
        del data[name]
    partial = folder / (TRACE_FILE + ".part")
    partial.write_text(json.dumps(data), encoding="utf-8")
    partial.replace(folder / TRACE_FILE)


def read(folder: Path) -> RankTrace:
    """Read a rank's folder, also one whose rank was ended before it wrote its trace."""
    printed: dict[str, Any] = {
        "lines": tuple(line for line in _text(folder / STDOUT_FILE).splitlines() if not OF_GLOO.match(line)),
        "stderr": _text(folder / STDERR_FILE),
        "stack": _text(folder / STACK_FILE),
        "checks": journal.read(folder / CHECKS_FILE),
        "gathered": operands.read(folder / ROWS_FILE),
        "observations": observations.read(folder / SEEN_FILE),
    }
    if not (folder / TRACE_FILE).exists():
        return RankTrace("unfinished", **printed)
    data = json.loads((folder / TRACE_FILE).read_text(encoding="utf-8"))
    events = tuple(Event(**(e | {"values": tuple(e["values"])})) for e in data.pop("events"))
    batches = tuple(Batch(**b) for b in data.pop("batches"))
    where = tuple(Printed(**p) for p in data.pop("printed"))
    parameters = tuple(Parameter(**(p | {"shape": tuple(p["shape"])})) for p in data.pop("parameters"))
    weights = np.load(folder / WEIGHTS_FILE)
    xla = data.pop("xla")
    return RankTrace(
        xla=XlaCounts(tuple(xla.pop("compiled")), **xla) if xla else None,
        events=events,
        batches=batches,
        printed=where,
        parameters=parameters,
        weights=weights,
        **data,
        **printed,
    )


def steps_so_far(folder: Path) -> int:
    """Optimizer steps of a rank that is still running."""
    try:
        return int.from_bytes((folder / STEPS_FILE).read_bytes(), "little")
    except OSError:
        return 0


def source_line(place: str) -> str:
    """ "file:line" of a place that is given as "file:line:function"; "" where it is unknown."""
    return place.rpartition(":")[0]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
