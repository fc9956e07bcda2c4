"""Waits for the ranks of a run, and detects those that wait for each other for ever, long before the time is up."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstrain.launch.worker import die_with_parent

from crosstrain_verify.records import traces

POLL_SECONDS = 0.005
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


def fork_store() -> tuple[int, int]:
    """Start the store of one run in its own process; returns (pid, port). The port is bound already."""
    from crosstrain.launch import loopback

    listener, port = loopback.listen()
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        store = loopback.serve(listener)
        while store:  # the store's thread serves; this one has nothing to do
            signal.pause()
    listener.close()
    return pid, port


def client_is_gone() -> bool:
    """Whether standard input is closed. The client sends nothing while a job runs, so it is readable only if it is closed."""
    readable, _, _ = select.select([sys.stdin], [], [], 0)
    return bool(readable)


def wait(
    pids: Sequence[int], timeout: float, out: Path, gone: Callable[[], bool] = client_is_gone
) -> dict[str, Any]:
    """Wait until all ranks have ended, one has failed, they stall, or the time is up. Then end all of them and their children.

    Args:
        pids: the ranks' processes.
        timeout: seconds.
        out: the run's folder.
        gone: returns whether nobody waits for the ranks any more.
    """
    deadline = time.monotonic() + timeout
    folders = [out / str(rank) for rank in range(len(pids))]
    ranks = [
        Rank(pid, folder / traces.TRACE_FILE, folder / traces.STACK_FILE)
        for pid, folder in zip(pids, folders, strict=True)
    ]
    watch = StallWatch(ranks)
    running = set(pids)
    timed_out = failed = stalled = False
    while running and not failed and not timed_out and not stalled:
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.discard(pid)
                failed = failed or status != 0
        timed_out = time.monotonic() > deadline
        if running and gone():
            break
        stalled = len(running) == len(pids) and watch.stalled()
        time.sleep(POLL_SECONDS)
    if timed_out and running:
        ask_for_stacks(sorted(running), ranks)
    for pid in pids:
        kill_session(pid)
    for pid in running:
        os.kill(pid, signal.SIGKILL)  # it may not have started its session yet
        os.waitpid(pid, 0)
    return {"timed_out": timed_out and bool(running), "stalled": stalled}


def kill_session(pid: int) -> None:
    """End a rank's process group; it may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


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
