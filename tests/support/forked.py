"""Run scripts as forks of a process that has loaded what they import: loading takes longer than most of these trainings.

The process that forks must not have used a device; a fork cannot use it then.
"""

import atexit
import os
import runpy
import shutil
import signal
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tests.support.ranks import free_port, rank_variables

LIMIT = 300.0  # seconds: for what hangs


@dataclass(frozen=True)
class Job:
    """A script of a folder, of which a copy is made. prelude: called in the new process first."""

    name: str
    folder: Path
    script: str
    args: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    prelude: Callable[[], None] | None = None
    world: int = 1  # processes


@dataclass(frozen=True)
class Ran:
    """A run that has ended. code, out, err: of the first process that failed, else of rank 0."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        """All that it printed."""
        return f"{self.out}\n{self.err}"

    @property
    def was_stopped(self) -> bool:
        return self.code == -signal.SIGKILL


def run_all(jobs: Iterable[Job], at_once: int = 1) -> Iterator[tuple[Job, Ran]]:
    """Every job with its outcome, in the order in which they end."""
    waiting, running = list(jobs), list[_Running]()
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(_Running(waiting.pop(0)))
        for one in list(running):
            if (ran := one.poll()) is not None:
                running.remove(one)
                yield one.job, ran
        time.sleep(0.05)


class _Running:
    """The processes of a job."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._place = tempfile.TemporaryDirectory()
        self._folder = Path(self._place.name).resolve() / job.folder.name
        shutil.copytree(job.folder, self._folder, ignore=shutil.ignore_patterns("__pycache__"), symlinks=True)
        self._children: dict[int, int] = {}  # by process: its rank
        self._codes: dict[int, int] = {}
        self._deadline = time.monotonic() + LIMIT
        port = free_port()
        for rank in range(job.world):
            child = os.fork()
            if child == 0:
                self._become(rank, port)
            self._children[child] = rank

    def _become(self, rank: int, port: int) -> None:
        """In the new process: be the script's; this never returns."""
        os.setsid()
        registry: Any = weakref.finalize
        registry._registry.clear()  # the temporary folders of the process that forks are its own
        for descriptor in (1, 2):
            said = os.open(self._said(rank, descriptor), os.O_WRONLY | os.O_CREAT)
            os.dup2(said, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.environ.update(self.job.variables)
        if self.job.world > 1:
            os.environ.update(rank_variables(rank, self.job.world, port))
        _run(self.job, self._folder)

    def poll(self) -> Ran | None:
        """The outcome, once every process has ended or was stopped."""
        for child in list(self._children):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                self._codes[self._children.pop(child)] = os.waitstatus_to_exitcode(status)
        if not self._children:
            return self._finish()
        if time.monotonic() > self._deadline or any(self._codes.values()):
            for child in self._children:
                os.killpg(child, signal.SIGKILL)
        return None

    def _finish(self) -> Ran:
        # Of processes that failed, the first that was not stopped for another one's failure.
        failed = [(code == -signal.SIGKILL, rank) for rank, code in self._codes.items() if code]
        rank = min(failed)[1] if failed else 0
        out, err = (self._said(rank, n).read_text(encoding="utf-8", errors="replace") for n in (1, 2))
        self._place.cleanup()
        return Ran(self._codes[rank], out, err)

    def _said(self, rank: int, descriptor: int) -> Path:
        return Path(self._place.name) / f"{rank}.{descriptor}.txt"


def _run(job: Job, folder: Path) -> None:
    """Run the script here, and end this process."""
    code = 1
    try:
        os.chdir(folder)
        torch.set_num_threads(1)
        sys.argv[:] = [job.script, *job.args]
        sys.path[0] = str((folder / job.script).parent)
        if job.prelude is not None:
            job.prelude()
        runpy.run_path(job.script, run_name="__main__")
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code:
            traceback.print_exc()
    except BaseException:
        traceback.print_exc()
    finally:
        _leave(code)


def _leave(code: int) -> None:
    """End as an interpreter does, with what is registered for its end."""
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)
