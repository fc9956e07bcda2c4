"""Writing a checkpoint while the training goes on, in a thread on each rank.

Each thread writes its rank's files and then posts a notice that it has, or why it could not. The threads of the ranks
that publish the checkpoint wait for all notices, so a checkpoint gets its name only when it is complete on every rank.
No thread makes a collective in the training's own process groups, because the order of collectives would then differ
from rank to rank.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from crosstrain.checkpoint.contents import COPIES
from crosstrain.checkpoint.training import run_collectively
from crosstrain.comm.devices import use_in_thread
from crosstrain.comm.notices import Notices
from crosstrain.comm.protocol import Comm
from crosstrain.run import RUN

INTERVAL = 0.01  # seconds between two reads of the notices
LIMIT = timedelta(minutes=30)  # how long to wait for other ranks to write
BRIEFLY = timedelta(seconds=10)  # the same where this process has failed, and the others may wait for it


class OtherFailed(RuntimeError):
    """Another rank failed to write its part; that rank raises the error itself."""


@dataclass(frozen=True)
class Work:
    """The remaining work on a checkpoint. ``publish`` and ``abandon`` are None on ranks that only write."""

    target: Path
    write: Callable[[], object]
    publish: Callable[[], object] | None
    abandon: Callable[[], object] | None


class BackgroundSave:
    """A checkpoint that this rank's thread is writing: the run's unfinished work until somebody waits for it."""

    def __init__(self, work: Work, comm: Comm) -> None:
        """Start the thread (collective)."""
        self.target = work.target
        self.error: Exception | None = None
        self._process = os.getpid()
        self._work = work
        self._error_before = _last_error()
        self._rank, self._world = comm.rank, comm.world
        self._device = comm.device
        self._notices = Notices(comm, f"save/{comm.broadcast_object(uuid.uuid4().hex)}")
        # The interpreter waits for a thread that is not a daemon before it leaves the process group.
        self._thread = threading.Thread(target=self._run, name="crosstrain-save", daemon=False)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def finish(self, comm: Comm) -> None:
        """Wait for every rank's thread (collective); an error on one rank, which the others know of too, is raised on all."""
        if self.wait():
            run_collectively(comm, self._raise)

    def _raise(self) -> None:
        if self.error is not None and not isinstance(self.error, OtherFailed):
            raise self.error

    def join(self) -> None:
        """Wait for this rank's thread; an error is only printed."""
        self.report_failure()

    def report_failure(self) -> bool:
        """Wait for this rank's thread, print its error, and return whether there is one."""
        failed = self.wait() and self.error is not None
        if failed:
            problem = f"{type(self.error).__name__}: {self.error}"
            sys.stderr.write(f"crosstrain: the checkpoint {self.target} was not saved: {problem}\n")
            sys.stderr.flush()
        return failed

    def wait(self) -> bool:
        """Wait for the thread; False in a forked process, which ignores its parent's."""
        RUN.unfinished = None
        is_own = self._process == os.getpid()
        if is_own:
            self._thread.join()
        return is_own

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            use_in_thread(self._device)
            self._write_and_publish()
        except Exception as error:
            self.error = error

    def _write_and_publish(self) -> None:
        problem = _problem_of(self._work.write)
        self._post("written", problem)
        if self._work.publish is not None:
            problem = self._publish(self._work.publish, problem)
        if problem is not None:
            raise problem

    def _publish(self, publish: Callable[[], object], problem: Exception | None) -> Exception | None:
        """Wait for the other ranks and publish, or remove what was written; returns the error, if any."""
        publishers: list[int] = []
        try:
            publishers = self._await("written", range(self._world))
            problem = problem or _problem_of(publish)
        except Exception as error:
            problem = problem or error
        if problem is not None and self._work.abandon is not None:
            self._work.abandon()
        self._post("published", problem)
        if problem is None and self._rank == 0:  # its process runs the store that the other publishers need
            return _problem_of(lambda: self._await("published", publishers))
        return problem

    def _post(self, what: str, problem: Exception | None) -> None:
        said = {
            "publishes": self._work.publish is not None,
            "error": None if problem is None else f"{type(problem).__name__}: {problem}",
        }
        self._notices.post(f"{what}/{self._rank}", json.dumps(said))

    def _await(self, what: str, ranks: range | list[int]) -> list[int]:
        """Wait until these ranks have posted; returns those of them that publish.

        Raises RuntimeError if one failed or is late.
        """
        names = [f"{what}/{rank}" for rank in ranks]
        deadline = time.monotonic() + LIMIT.total_seconds()
        while (texts := self._notices.read(names)) is None:
            if _last_error() is not self._error_before:
                deadline = min(deadline, time.monotonic() + BRIEFLY.total_seconds())
            if time.monotonic() > deadline:
                raise RuntimeError("another process has not written its part of the checkpoint in time")
            time.sleep(INTERVAL)
        notices = dict(zip(ranks, map(json.loads, texts), strict=True))
        for rank, said in notices.items():
            if said["error"] is not None:
                raise OtherFailed(f"the checkpoint failed on rank {rank}: {said['error']}")
        return [rank for rank, said in notices.items() if said["publishes"]]


def _problem_of(work: Callable[[], object]) -> Exception | None:
    try:
        work()
    except Exception as error:
        return error
    return None


def _last_error() -> BaseException | None:
    """The uncaught exception that ends this process; in a notebook, the last one that ended a cell."""
    error: BaseException | None = getattr(sys, "last_value", None)
    return error


def start(work: Work, comm: Comm) -> None:
    """Start a thread that does the work (collective). No other save may be pending."""
    RUN.unfinished = BackgroundSave(work, comm)


def finish(comm: Comm) -> None:
    """Wait for the pending save, if any (collective); an error on one rank is raised on all of them."""
    if RUN.unfinished is not None:
        RUN.unfinished.finish(comm)


def release_copies() -> None:
    """Free the host memory of the copies, unless a thread still reads them."""
    save = RUN.unfinished
    if not (isinstance(save, BackgroundSave) and save.running):
        COPIES.release()


def _report_failure() -> None:
    """At exit: a process whose last checkpoint could not be saved prints the error and exits with code 1."""
    save = RUN.unfinished
    failed = isinstance(save, BackgroundSave) and save.report_failure()
    if failed and _last_error() is None:  # otherwise the exit code is an error's already
        sys.stdout.flush()
        os._exit(1)


# Registered before any run starts, so that it runs after all other exit functions.
atexit.register(_report_failure)
