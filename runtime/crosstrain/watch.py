"""Where every rank is, when one of them has waited too long.

The thread that answers looks at the store once a second. It must not sleep inside the store: it would be torn
down there when the process ends, and take the process with it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import _get_default_store

from crosstrain.frames import caller

INTERVAL = 1.0  # seconds
PATIENCE = timedelta(seconds=5)
_ASKED = "crosstrain/asked"
_PLACE = "crosstrain/place/"


class Watch:
    """A thread of each rank that says, when somebody asks, what the rank's main thread does.

    ``operation``: the collective that this rank is in, "" outside.
    """

    def __init__(self, rank: int, world: int, operation: Callable[[], str]) -> None:
        self._rank = rank
        self._world = world
        self._operation = operation
        store: Any = _get_default_store()
        # Who waits holds the connection: each side has one of its own.
        self._mouth, self._ears = store.clone(), store.clone()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._answer, name="crosstrain-watch", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop answering."""
        self._over.set()
        self._thread.join()

    def _answer(self) -> None:
        try:
            while not self._over.wait(INTERVAL):
                if self._ears.check([_ASKED]):
                    self._ears.set(f"{_PLACE}{self._rank}", self._here())
                    return
        except RuntimeError:  # the process that keeps the store has ended
            return

    def _here(self) -> str:
        frame: Any = sys._current_frames().get(threading.main_thread().ident or 0)
        operation = self._operation()
        line = caller(frame)
        return f"waits in {operation} at {line}" if operation else f"in no collective, at {line}"

    def explain(self, error: Exception) -> RuntimeError:
        """The error of a collective, with what every rank is doing and which ones did not come."""
        mine = self._operation()
        places = self._ask()
        missing = [rank for rank, place in enumerate(places) if f"waits in {mine} at " not in place]
        lines = "\n".join(f"  rank {rank}: {place}" for rank, place in enumerate(places))
        who = (
            f"missing: {', '.join(f'rank {rank}' for rank in missing)}"
            if missing
            else "nobody is missing now"
        )
        return RuntimeError(
            f"rank {self._rank} waited in vain in {mine} ({who}):\n{lines}\nEvery rank must reach the same "
            f"collective calls: look at the lines above for a branch that only some ranks take, a loop with "
            f"different numbers of batches, or work that takes longer than the time-out "
            f"(InitProcessGroupKwargs(timeout=...), `crosstrain launch --timeout`).\nThe backend said: {error}"
        )

    def _ask(self) -> list[str]:
        try:
            self._mouth.set(_ASKED, "1")
        except RuntimeError:
            return [
                "cannot be asked any more: the process that keeps the ranks' store has ended"
            ] * self._world
        return [self._place_of(rank) for rank in range(self._world)]

    def _place_of(self, rank: int) -> str:
        try:
            self._mouth.wait([f"{_PLACE}{rank}"], PATIENCE)
            return bytes(self._mouth.get(f"{_PLACE}{rank}")).decode()
        except RuntimeError:
            return "does not answer: its process has ended, or its machine cannot be reached"


class Watched:
    """A collective that has been started, whose failure is explained."""

    def __init__(self, work: Any, wait: Callable[[Callable[[], object]], object]) -> None:
        self._work = work
        self._wait = wait

    def wait(self) -> object:
        return self._wait(self._work.wait)
