"""Detects ranks that wait for each other for ever, long before the time is up."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

LOOK_SECONDS = 1.0
STALL_SECONDS = 12.0  # without CPU use; on a loaded machine a rank may get no CPU for some seconds
IDLE_TICKS = 10  # of CPU time between two looks (a tenth of a core), which waiting may use
STACK_SECONDS = 0.3  # that a rank has to write its stack
# Files in the stack of a rank that waits for the others.
WAITS = (
    "distributed_c10d.py",
    "crosstrain/comm/torch_backend.py",
    "crosstrain/comm/device_limits.py",
    "crosstrain/comm/outbox.py",
    "crosstrain/comm/write_once.py",
    "crosstrain/step/buckets.py",
    "crosstrain/step/gradients.py",
)


@dataclass(frozen=True)
class Rank:
    """One rank as the server sees it. trace: this file exists when the script has ended. stack: the file of its stacks."""

    pid: int
    trace: Path
    stack: Path


class StallWatch:
    """Looks at the ranks once a second. They are stalled if none has used the CPU for a while and each waits for another.

    The CPU use of a rank whose script has ended does not count: it polls for the other ranks' traces.
    """

    def __init__(self, ranks: Sequence[Rank]) -> None:
        self._ranks = ranks
        self._next = time.monotonic() + LOOK_SECONDS
        self._busy = time.monotonic()
        self._used: dict[int, int] = {}

    def stalled(self) -> bool:
        """Whether the ranks are stalled. Call it often: it looks at them only once a second."""
        now = time.monotonic()
        if len(self._ranks) < 2 or now < self._next:
            return False
        self._next = now + LOOK_SECONDS
        if self._any_busy():
            self._busy = now
            return False
        if now - self._busy < STALL_SECONDS:
            return False
        self._busy = now
        ask_for_stacks([rank.pid for rank in self._ranks], self._ranks)
        return all(rank.trace.exists() or _waits(rank.stack) for rank in self._ranks)

    def _any_busy(self) -> bool:
        busy = False
        for rank in self._ranks:
            state, used = _cpu(rank.pid)
            before = self._used.get(rank.pid, -1)
            rests = state in "SZ" and before >= 0 and used - before <= IDLE_TICKS
            busy = busy or not (rests or rank.trace.exists())
            self._used[rank.pid] = used
        return busy


def ask_for_stacks(pids: Sequence[int], ranks: Sequence[Rank]) -> None:
    """Make these ranks write their stacks, in place of what they wrote before."""
    for rank in ranks:
        if rank.pid in pids:
            if rank.stack.exists():
                os.truncate(rank.stack, 0)
            os.kill(rank.pid, signal.SIGUSR1)
    time.sleep(STACK_SECONDS)


def _waits(stack: Path) -> bool:
    text = stack.read_text(encoding="utf-8", errors="replace") if stack.exists() else ""
    return any(name in text for name in WAITS)


def _cpu(pid: int) -> tuple[str, int]:
    """(state, CPU ticks used) of a process; ("R", 0) if that cannot be told, so that it counts as running."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "R", 0
    return fields[0], int(fields[11]) + int(fields[12])
