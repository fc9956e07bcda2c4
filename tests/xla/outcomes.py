"""What a run of a converted script on XLA's CPU client says of the devices that the script's tensors are on."""

from __future__ import annotations

import atexit
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.forked import Ran
from tests.xla.strict import be_strict

ONE_CHIP = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "1", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
# Compiling takes most of the time of runs as short as these.
ONE_CHIP["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
# How torch and torch_xla refuse tensors of two devices.
MIXED = re.compile(
    r"not an XLA tensor|Expected XLA tensor|[Ee]xpected all tensors to be on the same device|at least two devices"
    r"|Input type \(.*\) and weight type|bridge::IsXlaTensor|convert xla:\d+ device type tensor to numpy|indices should be either on cpu or on the same"
)
EXECUTED = "graphs executed on the device:"
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in ')
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*")


@dataclass(frozen=True)
class Outcome:
    """What became of one run. ``where``: the innermost line of the script's own, with its file."""

    kind: str  # "runs", "mixes devices" or "cannot"
    why: str = ""
    where: str = ""
    seconds: float = 0.0  # of the processor
    text: str = ""  # what the run printed

    @property
    def cell(self) -> str:
        """As a table shows it."""
        said = f"{self.kind}: {self.why}" if self.why else self.kind
        return f"{said} ({self.where})" if self.where else said


def watch() -> None:
    """In a script's process: refuse to mix devices, and say at its end how much was computed on the device."""
    be_strict()
    count_graphs()


def count_graphs() -> None:
    """In a script's process: say at its end how much was computed on the device."""

    def say() -> None:
        from torch_xla.debug import metrics

        counts = [metrics.counter_value(name) or 0 for name in ("UncachedCompile", "CachedCompile")]
        print(f"\n{EXECUTED} {sum(counts)}")

    atexit.register(say)


def judged(ran: Ran) -> Outcome:
    """The outcome of a run."""
    last = ran.err[max(ran.err.rfind("Traceback"), 0) :]
    if ran.was_stopped:
        return Outcome(
            "runs" if ran.steps else "cannot", f"{ran.steps} steps in its time", "", ran.seconds, ran.text
        )
    if ran.code == 0:
        count = ran.out.rpartition(EXECUTED)[2].split()[:1]
        why = "" if count and int(count[0]) else "nothing on the device"
        return Outcome("runs", why, "", ran.seconds, ran.text)
    errors = [line.strip() for line in last.splitlines() if _ERROR.match(line.strip())]
    why = errors[-1][:160] if errors else f"exit code {ran.code}"
    kind = "mixes devices" if MIXED.search(last) else "cannot"
    return Outcome(kind, why, _line(last, ran.folder), ran.seconds, ran.text)


def _line(text: str, folder: str) -> str:
    """The innermost line of a traceback that is below ``folder``."""
    frames = _FRAME.findall(text)
    own = [(file, line) for file, line in frames if file.startswith(folder) or not Path(file).is_absolute()]
    return f"{Path(own[-1][0]).name}:{own[-1][1]}" if own else ""


def load() -> None:
    """Load, once for all runs, what they import. Before torch_xla is loaded it must know its device."""
    assert "torch_xla" not in sys.modules
    os.environ.update(ONE_CHIP)
    import crosstrain.comm.xla.backend  # noqa: F401
