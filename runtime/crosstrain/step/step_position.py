"""Notices ranks that part ways: whose backward passes or optimizer steps do not belong together.

Each process draws its own random numbers in a pass. So a coin that is thrown within the step, and decides which network
trains, falls differently, and the ranks would average gradients of different models or of different steps.

On the CPU a hash of each rank's position (its steps, its batches, the model) rides with the flags of the last bucket, which
all ranks read in every step: that costs nothing. The ranks that read different hashes tell each other where they are and
raise. Buffers of different sizes may not meet at all, because gloo ends the process then, so where several models are
averaged the hosts agree on the model before its first bucket starts.

On devices (NCCL) the host does not read the flags in every step, because that would wait for the device, and the host does
not ask before a collective either. Ranks that average different models wait for each other in NCCL, or mix their gradients
if the sizes agree. The former ends as every hang does: the watch of `comm.hang_report` prints after a minute at which line
each rank is, and the time-out ends the run. The latter is found where replicas are compared (`replica_consistency`).
`crosstrain launch --debug` compares every averaging over gloo before it starts, on every device.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import torch
from torch import Tensor

from crosstrain.comm.frames import AVERAGES, TOGETHER
from crosstrain.comm.protocol import Comm
from crosstrain.utils.script_frames import caller

if TYPE_CHECKING:
    from crosstrain.step.window import Gradients

BITS = 8
_NAMED = 3  # parameters in a message


class Averaging(Protocol):
    """A `GradientSync`."""

    averagings: int
    watched: Any

    def touched_names(self) -> list[str]:
        """The names of the parameters with a gradient since the last averaging."""
        ...


class Prepared(Protocol):
    """The `PreparedObjects`."""

    syncs: list[Any]
    gates: list[Any]


class StepPosition:
    """Where this rank is in the training, to be compared with the others."""

    def __init__(self, comm: Comm, gradients: Gradients, prepared: Prepared) -> None:
        self._comm = comm
        self._gradients = gradients
        self._prepared = prepared
        self._tables: dict[torch.dtype, Tensor] = {}

    def bits(self, sync: Averaging) -> list[bool]:
        """A hash of the position as `BITS` flags."""
        number = self._number(sync)
        return [bool(number >> bit & 1) for bit in range(BITS)]

    def write(self, sync: Averaging, flags: Tensor) -> None:
        """Write `bits` into the tensor, of (`BITS`,)."""
        table = self._tables.get(flags.dtype)
        if table is None:
            rows = [[number >> bit & 1 for bit in range(BITS)] for number in range(1 << BITS)]
            table = self._tables[flags.dtype] = torch.tensor(rows, dtype=flags.dtype, device="cpu")
        flags.copy_(table[self._number(sync)])

    def agree(self, sync: Averaging) -> None:
        """Check that all ranks are about to average the same model, where there are several (one message).

        Also where one of several optimizers has not stepped yet: its first step compares the ranks, too.

        Raises RuntimeError on all ranks where they are not.
        """
        gates = self._prepared.gates
        if len(self._prepared.syncs) > 1 or (len(gates) > 1 and not all(gate.steps for gate in gates)):
            self._comm.agree(self._described(sync), _named(sync))  # which may be others on each rank

    def check(self, sync: Averaging, shares: Sequence[float]) -> None:
        """Raise RuntimeError on all ranks where ``shares``, the averages of all ranks' `bits`, are not of equal ones."""
        least = 0.5 / self._comm.world
        if any(least < share < 1 - least for share in shares):
            self._fail(sync)

    def _fail(self, sync: Averaging) -> NoReturn:
        said = self._comm.all_gather_object(
            (f"{self._described(sync)} {_named(sync)}", caller(), self._stepped())
        )
        lines = [f"  rank {rank}: {what} at {line}{steps}" for rank, (what, line, steps) in enumerate(said)]
        listing = "\n".join(lines)
        raise RuntimeError(
            f"the ranks have parted: they average gradients that do not belong together.\n{listing}\n{TOGETHER}"
        )

    def _number(self, sync: Averaging) -> int:
        steps = [gate.steps for gate in self._prepared.gates]
        # Of integers, hash() is the same in every process.
        number = hash((self._index(sync), sync.averagings, self._batches(), *steps))
        return number & ((1 << BITS) - 1)

    def _index(self, sync: Averaging) -> int:
        return next((at for at, one in enumerate(self._prepared.syncs) if one is sync), -1)

    def _batches(self) -> int:
        """The batches of the innermost loop; -1 outside, and where another thread reads ahead."""
        run = self._gradients.active.innermost
        return run.done if run is not None and run.thread == threading.get_ident() else -1

    def _described(self, sync: Averaging) -> str:
        batches = self._batches()
        where = f", batch {batches} of the loop" if batches >= 0 else ""
        steps = ", ".join(str(gate.steps) for gate in self._prepared.gates) or "no"
        return f"{AVERAGES} of {sync.watched.title}{self._which(sync)} after {steps} optimizer steps{where}"

    def _which(self, sync: Averaging) -> str:
        count = len(self._prepared.syncs)
        return f", {self._index(sync) + 1} of {count} that were prepared," if count > 1 else ""

    def _stepped(self) -> str:
        """The optimizers' numbers of steps, and the lines of their last ones."""
        gates = self._prepared.gates
        told = [f"{type(gate.optimizer).__name__} made {gate.steps} steps{gate.last_place}" for gate in gates]
        return f" ({'; '.join(told)})" if told else ""


def _named(sync: Averaging) -> str:
    """The parameters that have gradients: a rank may use others, such as those of a branch that it draws."""
    names = sync.touched_names()
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"({', '.join(names[:_NAMED])}{more})"
