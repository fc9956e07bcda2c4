"""The summary of a training that the launcher prints when it ends.

The launcher names a file in CROSSTRAIN_SUMMARY. The main process adds a line to it after each checkpoint and at its end, so
the file also has the counts of a process that is killed, up to its last checkpoint.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

VARIABLE = "CROSSTRAIN_SUMMARY"


class Progress(NamedTuple):
    """Optimizer steps so far, and samples of one step (None: unknown)."""

    steps: int
    samples: int | None


class Summary:
    """The counts of one Accelerator, from its `prepare` on.

    ``count``: returns the counts, or None when the Accelerator no longer has what it prepared. It is kept until the next
    summary or the end, when the script's Accelerator may be gone.
    """

    def __init__(self, count: Callable[[], Progress | None], path: Path) -> None:
        self._count = count
        self._path = path
        self._started = time.monotonic()
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self._last: dict[str, Any] = {"attempt": attempt, "steps": 0, "seconds": 0.0, "samples": None}

    def write(self, checkpoint: str | None = None) -> None:
        """Add a line with the counts and seconds so far; without new counts, the last ones."""
        counts = self._count()
        if counts is not None:
            self._last |= {**counts._asdict(), "seconds": time.monotonic() - self._started}
        if checkpoint is not None:
            self._last["checkpoint"] = checkpoint
        # If the launcher is gone, so is its folder; that must not make the training fail.
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._last) + "\n")


_CURRENT: list[Summary] = []


def begin(count: Callable[[], Progress | None]) -> None:
    """Write these counts from now on, if a launcher asks for them. The main process calls this."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    if not _CURRENT:
        atexit.register(write)
    _CURRENT[:] = [Summary(count, Path(path))]


def write() -> None:
    """Add a line with the counts so far."""
    _CURRENT[-1].write()


def saved(directory: Path) -> None:
    """Called by the main process when a checkpoint is complete."""
    if _CURRENT:
        _CURRENT[-1].write(str(directory))


def describe(path: Path, processes: int) -> str:
    """The summary of the launcher; "" if no Accelerator trained."""
    if not path.exists():
        return ""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    attempts = {line["attempt"]: line for line in lines}
    steps = sum(line["steps"] for line in attempts.values())
    parts = [f"{processes} process{'es' if processes > 1 else ''}", f"{steps:,} steps"]
    last = lines[-1]
    if last["samples"] is not None and last["steps"]:
        parts.append(f"{last['steps'] * last['samples'] / last['seconds']:,.0f} samples/s")
    restarts = max(attempts)
    parts.append(f"{restarts} restart{'' if restarts == 1 else 's'}" if restarts else "no restarts")
    checkpoint = next((line["checkpoint"] for line in reversed(lines) if "checkpoint" in line), None)
    parts.append(f"last checkpoint {_short(checkpoint)}" if checkpoint else "no checkpoint")
    return ", ".join(parts)


def _short(checkpoint: str) -> str:
    here = Path.cwd()
    path = Path(checkpoint)
    return str(path.relative_to(here) if path.is_relative_to(here) else path)
