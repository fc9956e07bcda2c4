"""Writing a checkpoint beside the training: a thread of each rank, and what they tell each other.

A rank's thread writes its files, then posts that it has, or why it could not. The threads of those ranks that publish
wait for all of these notices, so a checkpoint gets its name when it is complete on every rank, and never otherwise. No
thread makes a collective in the training's own groups: their order would not be the same on all ranks.
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
from crosstrain.checkpoint.training import together
from crosstrain.comm.devices import use_in_thread
from crosstrain.comm.notices import Notices
from crosstrain.comm.protocol import Comm
from crosstrain.state import RUN

INTERVAL = 0.01  # seconds between two looks at the notices
LIMIT = timedelta(minutes=30)  # of waiting for other ranks to write
BRIEFLY = timedelta(seconds=10)  # where this process has failed: the others may be waiting for it


class OtherFailed(RuntimeError):
    """Another rank could not do its part; it has the error itself."""


@dataclass(frozen=True)
class Work:
    """What is left to do of a checkpoint. ``publish`` and ``abandon`` are None on ranks that only write."""

    target: Path
    write: Callable[[], object]
    publish: Callable[[], object] | None
    abandon: Callable[[], object] | None


class BackgroundSave:
    """One checkpoint that is being written by this rank's thread."""

    def __init__(self, work: Work, comm: Comm) -> None:
        """All ranks make one together."""
        self.target = work.target
        self.error: Exception | None = None
        self.process = os.getpid()
        self._work = work
        self._error_before = _last_error()
        self._rank, self._world = comm.rank, comm.world
        self._device = comm.device
        self._notices = Notices(comm, f"save/{comm.broadcast_object(uuid.uuid4().hex)}")
        # The interpreter waits for a thread that is no daemon, and leaves the process group only then.
        self._thread = threading.Thread(target=self._run, name="crosstrain-save", daemon=False)
        self._thread.start()

    @property
    def running(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()

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
        """Wait for the others and publish, or remove what was written; returns what went wrong."""
        publishers: list[int] = []
        try:
            publishers = self._await("written", range(self._world))
            problem = problem or _problem_of(publish)
        except Exception as error:
            problem = problem or error
        if problem is not None and self._work.abandon is not None:
            self._work.abandon()
        self._post("published", problem)
        if problem is None and self._rank == 0:  # it keeps the store, which the other publishers need
            return _problem_of(lambda: self._await("published", publishers))
        return problem

    def _post(self, what: str, problem: Exception | None) -> None:
        said = {
            "publishes": self._work.publish is not None,
            "error": None if problem is None else f"{type(problem).__name__}: {problem}",
        }
        self._notices.post(f"{what}/{self._rank}", json.dumps(said))

    def _await(self, what: str, ranks: range | list[int]) -> list[int]:
        """Wait until these ranks have posted; RuntimeError if one failed. Returns those of them that publish."""
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
    """What this process ends because of. A notebook's process has lived on after such errors."""
    error: BaseException | None = getattr(sys, "last_value", None)
    return error


_PENDING: list[BackgroundSave] = []  # none or one


def start(work: Work, comm: Comm) -> None:
    """Let a thread do the work; every rank calls this, when nothing is pending."""
    RUN.unfinished = _Unfinished()
    _PENDING[:] = [BackgroundSave(work, comm)]


def finish(comm: Comm) -> None:
    """Wait for the save that is pending; every rank calls this, and all raise the error of any."""
    save = _take()
    if save is None:
        return
    save.join()

    def raise_error() -> None:
        if save.error is not None and not isinstance(save.error, OtherFailed):
            raise save.error

    together(comm, raise_error)  # raises on all ranks what any of them has, also where others have told of it


def release_copies() -> None:
    """Give the host memory of the copies back, unless a thread still reads them."""
    if not any(save.running for save in _PENDING):
        COPIES.release()


class _Unfinished:
    """What the run does about a pending save before its processes part."""

    def finish(self, comm: Comm) -> None:
        finish(comm)

    def join(self) -> None:
        """Wait, without the other ranks; an error is only said."""
        save = _take()
        if save is not None:
            save.join()
            _say(save)


def _take() -> BackgroundSave | None:
    """The pending save. A process that was forked has its parent's, which is none of its own."""
    save = _PENDING.pop() if _PENDING else None
    return save if save is not None and save.process == os.getpid() else None


def _say(save: BackgroundSave) -> None:
    if save.error is not None:
        problem = f"{type(save.error).__name__}: {save.error}"
        sys.stderr.write(f"crosstrain: the checkpoint {save.target} was not saved: {problem}\n")
        sys.stderr.flush()


def _report_failure() -> None:
    """The script is over and has not asked: a process that lost its last checkpoint has failed."""
    save = _take()
    if save is None:
        return
    save.join()
    _say(save)
    if save.error is not None and _last_error() is None:  # else the exit code says so already
        sys.stdout.flush()
        os._exit(1)


# Registered before any run is started, so that it comes after everything else that ends with the process.
atexit.register(_report_failure)
