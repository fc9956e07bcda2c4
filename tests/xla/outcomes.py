"""One run of a converted script on XLA's CPU client, and what it says of the devices that the script's tensors are on.

A run is a fork of a process that has torch_xla loaded: loading takes longer than most of these trainings.
"""

from __future__ import annotations

import atexit
import os
import re
import runpy
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torch.optim.optimizer import register_optimizer_step_post_hook

ONE_CHIP = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "1", "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "3"}
# Compiling takes most of the time of runs as short as these.
ONE_CHIP["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
LIMIT = 60.0  # seconds of a processor
SLOWDOWN = 5  # of a machine that has other things to do
# How torch and torch_xla refuse tensors of two devices.
MIXED = re.compile(
    r"not an XLA tensor|Expected XLA tensor|[Ee]xpected all tensors to be on the same device|at least two devices"
    r"|bridge::IsXlaTensor|convert xla:\d+ device type tensor to numpy|indices should be either on cpu or on the same"
)
ENDED = re.compile(r"^graphs executed on the device: (\d+); steps of optimizers: (\d+)$", re.MULTILINE)
STOPPED = 99  # the exit code of a run that was stopped
GRACE = 15.0  # seconds for a run that is stopped to say how far it came
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


def run(
    script: str,
    args: tuple[str, ...],
    folder: Path,
    variables: Mapping[str, str] | None = None,
    prelude: Callable[[], None] | None = None,
    limit: float = LIMIT,
) -> Outcome:
    """Run a script of ``folder``, on one virtual chip unless the variables say another device.

    prelude: called in the new process before the script.
    """
    before = os.times()
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(said.fileno(), 1)
            os.dup2(said.fileno(), 2)
            _become(script, args, folder, ONE_CHIP | dict(variables or {}), prelude)
        code = _wait(child, limit)
        said.seek(0)
        text = said.read()
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return judged(code, text, folder, seconds, limit)


def _become(
    script: str,
    args: tuple[str, ...],
    folder: Path,
    variables: Mapping[str, str],
    prelude: Callable[[], None] | None,
) -> None:
    """Be the script's process; this never returns."""
    code = 1
    steps: list[object] = []
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(STOPPED))
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        os.environ.update(variables)
        sys.argv[:] = [script, *args]
        sys.path[0] = str((folder / script).parent)
        if prelude is not None:
            prelude()
        register_optimizer_step_post_hook(lambda *_: steps.append(None))
        runpy.run_path(script, run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code:
            traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code, len(steps))


def _leave(code: int, steps: int) -> None:
    """End as an interpreter does, with what is registered for its end."""
    try:
        if code != STOPPED:
            atexit._run_exitfuncs()
        from torch_xla.debug import metrics  # loaded by now, with the variables that it reads when it is

        counters = ("UncachedCompile", "CachedCompile")
        executed = sum(metrics.counter_value(name) or 0 for name in counters)
        print(f"\ngraphs executed on the device: {executed}; steps of optimizers: {steps}")
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _wait(child: int, limit: float) -> int:
    """Its exit code, once it has ended or was stopped. A busy machine is given more time, by the clock."""
    deadline = time.monotonic() + limit * SLOWDOWN
    asked = False
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
        elif not asked and (_processor(child) > limit or time.monotonic() > deadline - GRACE):
            asked, deadline = True, time.monotonic() + GRACE
            os.kill(child, signal.SIGTERM)
        time.sleep(0.1)


def _processor(process: int) -> float:
    """Seconds of the processor that a process has used."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def judged(code: int, text: str, folder: Path, seconds: float = 0.0, limit: float = LIMIT) -> Outcome:
    """The outcome of a run by its exit code and what it printed."""
    ended = ENDED.findall(text)
    executed, steps = map(int, ended[-1]) if ended else (0, 0)
    if code in (STOPPED, -signal.SIGKILL):
        kind = "runs" if executed and steps else "cannot"
        return Outcome(kind, f"{steps} steps in {limit:.0f} s", seconds=seconds, text=text)
    if code == 0:
        return Outcome("runs", "" if executed else "nothing on the device", seconds=seconds, text=text)
    last = text[max(text.rfind("Traceback"), 0) :]
    errors = [line.strip() for line in last.splitlines() if _ERROR.match(line.strip())]
    why = errors[-1][:160] if errors else f"exit code {code}"
    kind = "mixes devices" if MIXED.search(last) else "cannot"
    return Outcome(kind, why, _line(last, folder), seconds, text)


def _line(text: str, folder: Path) -> str:
    """The innermost line of a traceback that is below ``folder``."""
    frames = [(Path(file), line) for file, line in _FRAME.findall(text)]
    own = [(file, line) for file, line in frames if str(folder) in str(file) or not file.is_absolute()]
    return f"{own[-1][0].name}:{own[-1][1]}" if own else ""
