"""Reports where every rank is when one of them has waited too long.

A thread of each rank looks at the store once a second. It must not wait inside the store: the end of the process would
interrupt it there, and abort the process.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from crosstrain.comm.notices import another_connection, default_store
from crosstrain.utils.bounded import within
from crosstrain.utils.script_frames import caller

INTERVAL = 1.0  # seconds
PATIENCE = timedelta(seconds=5)
CONNECT = timedelta(seconds=60)
REPORT_SECONDS = 60.0  # of waiting in one collective, after which the places are printed
# Keys of the store. Each report is a round: one rank asks, and every rank answers once.
_CLAIM = "crosstrain/claim/{round}"
_ASKED = "crosstrain/asked/{round}"
_PLACE = "crosstrain/place/{round}/{rank}"
_SILENT = "does not answer: its process has ended, or its machine cannot be reached"


@dataclass
class _Report:
    """A report that this rank has asked for."""

    round: int
    turn: int
    operation: str
    deadline: float


class HangWatch:
    """A thread of each rank that answers where the rank's main thread is.

    If the main thread waits for REPORT_SECONDS, the thread asks all ranks and prints where they are; only one rank does so.

    ``activity``: returns the number and the name of the collective in which this rank is; the name is "" outside.
    """

    def __init__(self, rank: int, world: int, activity: Callable[[], tuple[int, str]]) -> None:
        self._rank = rank
        self._world = world
        self._activity = activity
        self._round = 0
        self._turn, self._since = 0, time.monotonic()
        self._reported_turn = -1  # the collective whose wait some rank has reported
        self._report: _Report | None = None
        # A wait blocks its connection to the store, so the main thread and this one have their own. A busy machine may make
        # them slower than the group's time-out allows.
        store = default_store()
        patience = max(store.timeout, CONNECT)
        self._asking_store, self._answering_store = (another_connection(store, patience) for _ in range(2))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crosstrain-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._over.set()
        self._thread.join(PATIENCE.total_seconds())  # if the link is cut, the thread waits for the store

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._over.wait(INTERVAL):
                turn, operation = self._activity()
                self._answer(turn)
                if self._report is not None:
                    self._collect(self._report, turn)
                elif operation and turn == self._turn:
                    self._look_at_the_clock(turn, operation)
                else:
                    self._turn, self._since = turn, time.monotonic()
        except RuntimeError:  # the process that keeps the store has ended
            return

    def _answer(self, turn: int) -> None:
        if self._answering_store.check([_ASKED.format(round=self._round)]):
            self._answering_store.set(_PLACE.format(round=self._round, rank=self._rank), self._here())
            self._round += 1
            self._reported_turn = turn

    def _look_at_the_clock(self, turn: int, operation: str) -> None:
        """Ask where all ranks are, if this one has waited for long and no other has asked."""
        now = time.monotonic()
        if now - self._since < REPORT_SECONDS or turn == self._reported_turn:
            return
        self._reported_turn = turn
        if self._answering_store.add(_CLAIM.format(round=self._round), 1) == 1:
            self._report = _Report(self._round, turn, operation, now + PATIENCE.total_seconds())
            self._answering_store.set(_ASKED.format(round=self._round), "1")

    def _collect(self, report: _Report, turn: int) -> None:
        """Print where the ranks are when all have answered, or the time for answers is over. Drop the report if the wait is
        over."""
        keys = [_PLACE.format(round=report.round, rank=rank) for rank in range(self._world)]
        if (
            turn == report.turn
            and not self._answering_store.check(keys)
            and time.monotonic() < report.deadline
        ):
            return
        self._report = None
        if turn != report.turn:
            return
        there = [self._answering_store.check([key]) for key in keys]
        places = [
            bytes(self._answering_store.get(key)).decode() if known else _SILENT
            for key, known in zip(keys, there, strict=True)
        ]
        sys.stderr.write(
            f"crosstrain: rank {self._rank} has waited {time.monotonic() - self._since:.0f} s in "
            f"{_table(report.operation, places)}\nIf the missing ranks make this call, the run goes on; otherwise the "
            f"time-out ends it (InitProcessGroupKwargs(timeout=...), `crosstrain launch --timeout`).\n"
        )

    def _here(self) -> str:
        frame: Any = sys._current_frames().get(threading.main_thread().ident or 0)
        _, operation = self._activity()
        line = caller(frame)
        return f"waits in {operation} at {line}" if operation else f"in no collective, at {line}"

    # -- the main thread --------------------------------------------------------------------------

    def explain(self, error: Exception) -> RuntimeError:
        """The error of a collective, with where every rank is and which ranks are missing."""
        _, mine = self._activity()
        return RuntimeError(
            f"rank {self._rank} waited in vain in {_table(mine, self._places())}\nEvery rank must reach the same "
            f"collective calls: look at the lines above for a branch that only some ranks take, a loop with "
            f"different numbers of batches, or work that takes longer than the time-out "
            f"(InitProcessGroupKwargs(timeout=...), `crosstrain launch --timeout`).\nThe backend said: {error}"
        )

    def _places(self) -> list[str]:
        """Where all ranks are. The question has its own limit, because the store's does not work if the link is cut."""
        try:
            return within((self._world + 1) * PATIENCE.total_seconds(), self._ask)
        except TimeoutError:
            return ["cannot be asked: the process that keeps the ranks' store does not answer"] * self._world

    def _ask(self) -> list[str]:
        number = self._round
        try:
            self._asking_store.set(_ASKED.format(round=number), "1")
        except RuntimeError:
            return [
                "cannot be asked any more: the process that keeps the ranks' store has ended"
            ] * self._world
        return [self._place_of(_PLACE.format(round=number, rank=rank)) for rank in range(self._world)]

    def _place_of(self, key: str) -> str:
        try:
            self._asking_store.wait([key], PATIENCE)
            return bytes(self._asking_store.get(key)).decode()
        except RuntimeError:
            return _SILENT


def _table(operation: str, places: list[str]) -> str:
    """The operation, the ranks that are missing in it, and a line for each rank."""
    missing = [rank for rank, place in enumerate(places) if f"waits in {operation} at " not in place]
    who = f"missing: {', '.join(f'rank {rank}' for rank in missing)}" if missing else "nobody is missing now"
    lines = "\n".join(f"  rank {rank}: {place}" for rank, place in enumerate(places))
    return f"{operation} ({who}):\n{lines}"


class StartedCollective:
    """A collective that has been started. ``wait`` calls the work's own wait and explains its errors."""

    def __init__(self, work: Any, wait: Callable[[Callable[[], object]], object]) -> None:
        self._work = work
        self._wait = wait

    def wait(self) -> object:
        return self._wait(self._work.wait)
