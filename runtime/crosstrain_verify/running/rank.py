"""One rank of a run: its place in the machine, and how it ends."""

from __future__ import annotations

import faulthandler
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from crosstrain.launch.target import hide_from_tracebacks
from crosstrain.launch.worker import die_with_parent

from crosstrain_verify.emulation.emulated import asked
from crosstrain_verify.records import traces
from crosstrain_verify.running.run_environment import RunEnvironment
from crosstrain_verify.running.waiting import POLL_SECONDS
from crosstrain_verify.tracing.printing import Output

hide_from_tracebacks(__file__)

_open = os.open  # the real function: a run that is confined replaces it


def isolate(job: Mapping[str, Any], rank: int, port: int, folder: Path) -> None:
    """Give this rank its own session, working directory, output files and environment."""
    os.setsid()
    die_with_parent()
    os.chdir(job["cwd"])
    os.environ.update(job["env"])
    os.environ.update(job["ranks_env"][rank] if job["ranks_env"] else {})
    if job["world"] > 1 or job["launched"]:
        os.environ.update(rank_variables(rank, job["world"], port, folder))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    sys.stdin = os.fdopen(0, encoding="utf-8")
    write_to(folder)
    sys.stdout = Output(1)
    sys.stderr = os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
    stacks_to(folder)
    faulthandler.enable(all_threads=True)
    sys.dont_write_bytecode = True


def rank_variables(rank: int, world: int, port: int, folder: Path) -> dict[str, str]:
    """The variables that a launcher sets for a rank; with several ranks also the path of the runtime's journal."""
    from crosstrain.utils import checks

    from crosstrain_verify.emulation.launcher import address

    variables = {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        **address(port),
    }
    return variables | ({checks.JOURNAL: str(folder / traces.CHECKS_FILE)} if world > 1 else {})


def write_to(folder: Path) -> None:
    """Redirect standard output and error to this rank's files."""
    for descriptor, name in ((1, traces.STDOUT_FILE), (2, traces.STDERR_FILE)):
        file = _open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)


def stacks_to(folder: Path) -> None:
    """Make this rank write its stacks to a file of the folder when it gets SIGUSR1."""
    stack = _open(folder / traces.STACK_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    faulthandler.register(signal.SIGUSR1, file=stack, all_threads=True)


def seed(rank: int) -> None:
    """Seed the random streams: every run starts alike and every rank differently, even if the script seeds nothing.

    The ranks' seeds for torch are as far apart as random ones, because the runtime takes closer ones for the script's own
    choice. They differ in their lower 32 bits, too, which are all that torch's generator on the CPU uses.
    """
    import numpy
    import torch

    random.seed(1000 * rank)
    numpy.random.seed(1000 * rank)
    torch.manual_seed(rank * ((1 << 40) + 1000))


class Recorder:
    """Ends a rank: writes its trace, waits for the other ranks, and leaves without the interpreter's slow shutdown."""

    def __init__(self, job: Mapping[str, Any], rank: int, port: int, folder: Path) -> None:
        from crosstrain_verify.tracing.tracer import Tracer

        self._folder = folder
        self._world = job["world"]
        self._ending: traces.Ending = "finished"
        self._error = ""
        self._time = 0
        self.write_others: Callable[[traces.RankTrace], None] = lambda trace: None  # see `notebook_launches`
        self.tracer = Tracer(job["steps"], self.stop)
        self.environment = RunEnvironment(job, self.tracer, rank, port)
        # Opened now, because the script will be confined.
        self._steps = os.open(folder / traces.STEPS_FILE, os.O_WRONLY | os.O_CREAT, 0o600)
        self.tracer.steps_done = lambda steps: os.pwrite(self._steps, steps.to_bytes(8, "little"), 0)
        output = sys.stdout
        assert isinstance(output, Output)
        self._output = output
        output.now = self.tracer.now

    def become(self, folder: Path, world: int) -> None:
        """Called in a process that a notebook has started as a rank."""
        self._folder, self._world, self.write_others = folder, world, lambda trace: None
        self.tracer.several = world > 1
        if folder.name != "0":
            self.tracer.steps_done = lambda steps: None

    def exited(self, end: SystemExit) -> None:
        """Called when the script calls `sys.exit`; an exit code of 0 or None is a normal end."""
        if end.code not in (None, 0):
            self.crashed(f"SystemExit: {end.code}\n")

    def crashed(self, error: str) -> NoReturn:
        """Leave at once, because threads and exit handlers of a failed script may never end."""
        self._ending, self._error, self._time = "crashed", error, time.time_ns()
        self.leave()

    def stop(self) -> NoReturn:
        """Leave after the last step, from within the optimizer, so that no `except` of the script can prevent it."""
        self._ending = "stopped"
        self.leave()

    def leave(self) -> NoReturn:
        """Write the trace, wait for the other ranks, and end the process."""
        from crosstrain.utils import checks

        sys.stdout.flush()
        sys.stderr.flush()
        checks.reset()  # writes the checks that were not reached; nothing of the script runs after this
        trace = self.tracer.trace(self._ending, self._error, self._time)
        printed, features = tuple(self._output.printed), tuple(sorted(asked))
        trace = replace(trace, printed=printed, asked=features, **self.environment.recorded())
        if self.environment.keeping is not None:
            self.environment.keeping.write(self._folder)
        traces.write(self._folder, trace)
        self.write_others(trace)
        if self._ending == "crashed":
            os._exit(1)
        self._wait_for_others()
        os._exit(0)

    def _wait_for_others(self) -> None:
        """Wait until all ranks have written their traces: the end of a rank closes connections that others may still use."""
        others = [self._folder.parent / str(rank) / traces.TRACE_FILE for rank in range(self._world)]
        while not all(file.exists() for file in others):
            time.sleep(POLL_SECONDS)
