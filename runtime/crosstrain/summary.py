"""What a training came to, for the line that the launcher prints when it ends.

The launcher names a file in CROSSTRAIN_SUMMARY; the main process adds a line to it after each checkpoint and
at its end, so that a process that is killed has told what it had done by then.
"""

from __future__ import annotations

import atexit
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crosstrain.accelerator import Accelerator

VARIABLE = "CROSSTRAIN_SUMMARY"


class Summary:
    """Counts of one Accelerator, from its `prepare` on.

    It is held until the next one or the end: a script's own may be gone by then, with the function that made it.
    """

    def __init__(self, accelerator: Accelerator, path: Path) -> None:
        self._accelerator = accelerator
        self._path = path
        self._started = time.monotonic()
        attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
        self._last: dict[str, Any] = {"attempt": attempt, "steps": 0, "seconds": 0.0, "samples": None}

    def write(self, checkpoint: str | None = None) -> None:
        """Add a line with the optimizer steps, seconds, samples of a step (None: not known) so far.

        An Accelerator that has forgotten what it prepared leaves the counts as they were.
        """
        accelerator = self._accelerator
        if accelerator._dataloaders:
            loader: Any = accelerator._dataloaders[0]
            rows = loader.total_batch_size
            self._last |= {
                "steps": max((gate.steps for gate in accelerator._gates), default=0),
                "seconds": time.monotonic() - self._started,
                "samples": None if rows is None else rows * accelerator.gradient_accumulation_steps,
            }
        if checkpoint is not None:
            self._last["checkpoint"] = checkpoint
        # A launcher that is gone has taken its folder along; no training fails for that.
        with suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(self._last) + "\n")


_CURRENT: list[Summary] = []


def begin(accelerator: Accelerator) -> None:
    """Keep the counts of this Accelerator, if a launcher asks for them. On the main process."""
    path = os.environ.get(VARIABLE)
    if not path:
        return
    if not _CURRENT:
        atexit.register(write)
    _CURRENT[:] = [Summary(accelerator, Path(path))]


def write() -> None:
    """Add a line with the counts so far."""
    _CURRENT[-1].write()


def saved(directory: Path) -> None:
    """A checkpoint is complete. On the main process."""
    if _CURRENT:
        _CURRENT[-1].write(str(directory))


def describe(path: Path, processes: int) -> str:
    """The launcher's line; empty where no Accelerator trained."""
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
