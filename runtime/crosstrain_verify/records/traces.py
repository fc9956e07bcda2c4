"""The trace of a run: one folder for each rank, written and read without torch."""

from __future__ import annotations

import pickle
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from crosstrain_verify.records import journal, observations

TRACE_FILE = "trace.pickle"
STDOUT_FILE = "stdout.txt"
STDERR_FILE = "stderr.txt"
STACK_FILE = "stack.txt"
CHECKS_FILE = "checks.jsonl"  # the runtime's journal
# Some versions of torch print this line to standard output when processes connect.
OF_GLOO = re.compile(r"\[Gloo\] Rank \d+ is connected to \d+ peer ranks")
HUNG_FILE = "hung.json"  # beside the ranks' folders; a notebook's process writes it when its ranks hang
STEPS_FILE = "steps"  # optimizer steps so far, 8 bytes, updated during the run

# finished: the script ended by itself. stopped: it was ended after the requested steps. crashed: it ended with an
# exception or an exit code. unfinished: it wrote no trace, because its process was ended from outside.
Ending = Literal["finished", "stopped", "crashed", "unfinished"]


@dataclass(frozen=True)
class Event:
    """One backward pass or optimizer step.

    Args:
        kind: "loss" for a backward pass, "step" for an optimizer step.
        index: 0 for a loss; the optimizer's number, in the order of first steps.
        values: of a loss, (the sum of the tensors that backward got,). Of a step, (gradient norm, norm of the weights
            before the step, learning rates of the parameter groups...).
        place: the script's line, as "file:line:function".
        parts: of an early step, the gradient norm of each of the optimizer's parameters.
    """

    kind: Literal["loss", "step"]
    index: int
    values: tuple[float, ...]
    place: str = ""
    parts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Batch:
    """One batch that a loader gave.

    Args:
        loader: its number, see `tracing.batches.LoaderWatch.number`.
        at: how many events came before.
        rows: how many rows belong to the pass, without those that complete or fill the batch; None if unknown.
        digest: a checksum of these rows that does not depend on their order, so that the checksums of shares add up to
            that of the batch (mod 2**64); None if unknown.
        first: whether it is the first batch of a pass over the loader.
        place: the script's line, as "file:line:function".
        width: bytes of a row, 0 if unknown. Batches that are padded to their longest sample have other widths when they
            are shared.
        length: of the first batch of a pass, how many its loader says that the pass has; 0 if unknown.
    """

    loader: int
    at: int
    rows: int | None
    digest: int | None
    first: bool
    place: str = ""
    width: int = 0
    length: int = 0


@dataclass(frozen=True)
class Printed:
    """Where in the run a line was printed: after how many events and batches, and by which line of the script."""

    events: int
    batches: int
    place: str


@dataclass(frozen=True)
class Parameter:
    """One parameter of one optimizer at the end of the run.

    Args:
        epsilon: the machine epsilon of its dtype.
        moved: the 2-norm of its final value minus its first.
        signal: the largest share that its gradient had in the norm of all gradients in any step; 0.0 without a gradient.
        trained: the number of steps in which it had a gradient, even if that was zero.
        steps: the number of its optimizer's steps.
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
    """What XLA did in a run.

    compiled: graphs compiled in each optimizer step. between: graphs compiled outside of steps, such as in evaluations.
    reads: values read from the device one by one. fallbacks: operations that ran on the CPU, and how often.
    """

    compiled: tuple[int, ...]
    between: int
    reads: int
    fallbacks: dict[str, int]


@dataclass(frozen=True)
class RankTrace:
    """One rank of one run.

    Args:
        loss_epsilon: machine epsilon of the coarsest dtype in which a loss was computed.
        time_ns: when the script failed.
        weights: all parameters in order, flattened to one float64 array, which is exact for every floating dtype.
        lines: what the rank printed. printed: one entry for each of these lines, as far as the script printed them itself.
        stack: where the rank was when it hung.
        written: the files that it opened for writing, and whether as something other than text.
        draws: training drew random numbers. noise: checksums of the streams from which it first did, before that. own_draws:
            in passes of prepared loaders the process draws its own. statistics: training used batch statistics.
        redrew: a run that draws share by share also drew in a backward pass, where it cannot do so.
        scale: the largest loss scale of mixed precision, 0.0 without one.
        checks: the checks that the runtime made.
        observations: of an observed run.
        xla: None if nothing was trained on an XLA device.
        asked: see `emulated`. joined, spawned, wrapped: see `launcher`. mixed: see `replay`.
        on_runtime: the script made the bundled runtime's accelerator.
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
    noise: tuple[int, ...] = ()
    own_draws: bool = False
    statistics: bool = False
    redrew: bool = False
    scale: float = 0.0
    checks: tuple[journal.Check, ...] = ()
    observations: observations.Observations | None = None
    xla: XlaCounts | None = None
    asked: tuple[str, ...] = ()
    joined: int = 0
    spawned: int = 0
    wrapped: bool = False
    mixed: bool = False
    on_runtime: bool = False

    def events_of(self, kind: Literal["loss", "step"]) -> list[Event]:
        """The events of one kind, in order."""
        return [event for event in self.events if event.kind == kind]

    @property
    def steps(self) -> int:
        """Optimizer steps that were executed and recorded."""
        return len(self.events_of("step"))

    @property
    def epsilon(self) -> float:
        """Machine epsilon of the coarsest dtype that took part; 0.0 if nothing was recorded."""
        return max([self.loss_epsilon, *(parameter.epsilon for parameter in self.parameters)])


def write(folder: Path, trace: RankTrace) -> None:
    """Write a rank's trace. The file appears only when it is complete."""
    partial = folder / (TRACE_FILE + ".part")
    partial.write_bytes(pickle.dumps(trace))
    partial.replace(folder / TRACE_FILE)


def read(folder: Path) -> RankTrace:
    """Read a rank's folder, even if the rank was ended before it wrote its trace."""
    file = folder / TRACE_FILE
    trace: RankTrace = pickle.loads(file.read_bytes()) if file.exists() else RankTrace("unfinished")
    return replace(
        trace,
        lines=tuple(line for line in _text(folder / STDOUT_FILE).splitlines() if not OF_GLOO.match(line)),
        stderr=_text(folder / STDERR_FILE),
        stack=_text(folder / STACK_FILE),
        checks=journal.read(folder / CHECKS_FILE),
    )


def steps_so_far(folder: Path) -> int:
    """The optimizer steps that a running rank has made."""
    try:
        return int.from_bytes((folder / STEPS_FILE).read_bytes(), "little")
    except OSError:
        return 0


def source_line(place: str) -> str:
    """The "file:line" of a place, which is "file:line:function"; "" if it is unknown."""
    return place.rpartition(":")[0]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
