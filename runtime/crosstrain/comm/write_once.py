"""Files that one process writes, and that are complete on every process that called for them to be written.

A process whose path is not the writer's (in a temporary directory of its own, with a time stamp in its name) writes its own
file. This is no collective: the writer waits for nobody, so that it may make the call alone, under `if is_main_process`.
"""

from __future__ import annotations

import builtins
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import torch.distributed as dist

from crosstrain.comm.notices import another_connection, default_store
from crosstrain.comm.protocol import Comm
from crosstrain.utils import checks
from crosstrain.utils.script_frames import users_lines

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=60)  # after which a process that waits logs what it waits for
CONNECT = timedelta(seconds=10)
SHORTEST, LONGEST = (0.004, 1.0)  # seconds between two looks into the store; many processes look less often
# Errors that a script may catch, and that therefore keep their type on every process.
_KINDS = (OSError, ValueError, TypeError)
_calls: Counter[str] = Counter()  # never reset, because the store with the answers may outlive a run


def write_once(
    comm: Comm, operation: str, path: str | os.PathLike[str], writer: int, write: Callable[[], object]
) -> None:
    """Call ``write()`` on rank ``writer``; other ranks that call this return when the file is complete.

    operation: the name of the call, for messages. A rank for which the writer's call has another path calls ``write()`` too.
    An error of the writer is raised on all ranks that wait.

    The calls of one place are counted, so that a rank finds the writer's call that corresponds to its own: by the place and
    the path, or by all the lines of the script that led there.
    """
    if comm.world == 1 or not dist.is_initialized():
        if comm.rank == writer:
            write()
        return
    call = _Call.of(path, writer)
    if comm.rank == writer:
        _write(call, write)
        return
    name = f"{operation}({call.path!r})"
    try:
        answer = comm.wait_for(name, partial(_answer, comm, name, call, writer))
    except RuntimeError:
        if _is_reachable():
            raise
        # The process that keeps the store has ended: it has written the whole file, or another one.
        answer = _Answer(elsewhere=not os.path.exists(call.path))  # noqa: PTH110 - a path of any kind
    if answer.elsewhere:
        write()
    elif answer.error is not None:
        name, text = answer.error
        raise _kind(name)(f"process {writer} could not write {call.path}: {name}: {text}")


class _Call(NamedTuple):
    """One call of this process. ``begun`` and ``done`` are the store's keys for the writer's call that corresponds to it.

    ``begun`` knows the lines of the script that led to the call, but not the path; ``done`` knows the path, and the last of
    the lines.
    """

    path: str
    begun: str
    done: str

    @classmethod
    def of(cls, path: str | os.PathLike[str], writer: int) -> _Call:
        whole = os.path.abspath(os.fspath(path))  # noqa: PTH100 - links stay
        lines = users_lines(sys._getframe(1))
        begun = _counted(f"crosstrain/begun/{writer} {' '.join(lines)}")
        return cls(whole, begun, _counted(f"crosstrain/written/{writer} {checks.here()} {whole}"))


class _Answer(NamedTuple):
    """What the writer did: wrote another file, or wrote this one, with the name and text of an error."""

    elsewhere: bool = False
    error: tuple[str, str] | None = None


def _counted(call: str) -> str:
    _calls[call] += 1
    return f"{call} {_calls[call]}"


def _write(call: _Call, write: Callable[[], object]) -> None:
    store = default_store()
    store.set(call.begun, json.dumps([call.path, call.done]))
    problem: BaseException | None = None
    try:
        write()
    except BaseException as error:  # Ctrl+C too: the file is not there
        problem = error
        raise
    finally:
        said = None if problem is None else [type(problem).__name__, str(problem)]
        store.set(call.done, json.dumps(said))


def _answer(comm: Comm, name: str, call: _Call, writer: int) -> _Answer:
    """Wait until the writer begins the call, and then for the file; dist.DistStoreError after the run's time-out."""
    store = default_store()
    start = time.monotonic()
    limit: timedelta = store.timeout
    told = False
    pause, longest = SHORTEST, min(LONGEST, SHORTEST * comm.world)
    while not store.check([call.done]):
        if store.check([call.begun]):
            path, done = json.loads(store.get(call.begun))
            return _outcome(store, done) if path == call.path else _Answer(elsewhere=True)
        waited = timedelta(seconds=time.monotonic() - start)
        if waited > limit:
            raise dist.DistStoreError(f"{name}: process {writer} did not make this call in {limit}")
        if waited > PATIENCE and not told:
            told = True
            logger.warning(
                "this process has waited %d s at %s for process %d to make this call, %s, too.",
                PATIENCE.total_seconds(),
                checks.here(),
                writer,
                name,
            )
        time.sleep(pause)
        pause = min(2 * pause, longest)
    return _outcome(store, call.done)


def _outcome(store: Any, done: str) -> _Answer:
    """Wait for the file that the writer has begun."""
    if not store.check([done]):
        limit: timedelta = store.timeout
        # If the process that keeps the store has just ended, torch would keep trying to connect until the run's time-out.
        another_connection(store, min(CONNECT, limit)).wait([done], limit)
    said = json.loads(store.get(done))
    return _Answer(error=None if said is None else (said[0], said[1]))


def _is_reachable() -> bool:
    try:
        default_store().check(["crosstrain"])
    except RuntimeError:
        return False
    return True


def _kind(name: str) -> type[Exception]:
    kind = getattr(builtins, name, RuntimeError)
    is_one = issubclass(kind, _KINDS) and not issubclass(kind, UnicodeError)  # which takes five arguments
    return kind if is_one else RuntimeError
