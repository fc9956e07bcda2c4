"""Files that one process writes, and that are complete on every process that called for them to be written."""

from __future__ import annotations

import builtins
import json
import logging
import os
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch.distributed as dist

from crosstrain.comm.protocol import Comm
from crosstrain.utils import checks

logger = logging.getLogger(__name__)

PATIENCE = timedelta(seconds=60)  # after which a process that waits logs what it waits for
CONNECT = timedelta(seconds=10)
_KINDS = (
    OSError,
    ValueError,
    TypeError,
)  # errors that a script may catch, and that therefore keep their type on every process
_calls: Counter[str] = Counter()  # never reset, because the store with the answers may outlive a run


def write_once(comm: Comm, path: str | os.PathLike[str], writer: int, write: Callable[[], object]) -> None:
    """Call ``write()`` on rank ``writer``; other ranks that call this return when the file is complete.

    This is no collective: the writer notes in the store that it is done and waits for nobody, so it may call this alone,
    under `if is_main_process`. The calls of one line for one path are counted, so that the other ranks wait for the call that
    corresponds to theirs. An error of the writer is raised on all ranks that wait.
    """
    grouped = comm.world > 1 and dist.is_available() and dist.is_initialized()
    key = _key(path) if grouped else ""
    if comm.rank != writer:
        if grouped:
            _wait(comm, path, writer, key)
        return
    problem: Exception | None = None
    try:
        write()
    except Exception as error:
        problem = error
        raise
    finally:
        if grouped:
            said = None if problem is None else [type(problem).__name__, str(problem)]
            _store().set(key, json.dumps(said))


def _key(path: str | os.PathLike[str]) -> str:
    call = f"{checks.here()} {os.fspath(path)}"
    _calls[call] += 1
    return f"crosstrain/written/{call} {_calls[call]}"


def _store() -> Any:
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


def _wait(comm: Comm, path: str | os.PathLike[str], writer: int, key: str) -> None:
    try:
        said = comm.wait_for(f"save_model({os.fspath(path)!r})", partial(_answer, path, writer, key))
    except RuntimeError:
        if _is_reachable() or not os.path.exists(path):  # noqa: PTH110 - a path of any kind
            raise
        return  # the process that keeps the store has ended, and has written the whole file
    if said is not None:
        name, text = said
        raise _kind(name)(f"process {writer} could not write {os.fspath(path)}: {name}: {text}")


def _another_connection(store: Any, limit: timedelta) -> Any:
    """A new connection to the store, because a wait blocks the connection that it uses.

    Connecting has a short time-out: if the process that keeps the store has just ended, torch would keep trying until the
    run's time-out.
    """
    store.set_timeout(min(CONNECT, limit))
    try:
        patient = store.clone()
    finally:
        store.set_timeout(limit)
    patient.set_timeout(limit)
    return patient


def _answer(path: str | os.PathLike[str], writer: int, key: str) -> list[str] | None:
    """Wait for the writer. Returns None if it has written the file, or the name and text of its error."""
    store = _store()
    if not store.check([key]):
        limit: timedelta = store.timeout
        patient = _another_connection(store, limit)
        try:
            patient.wait([key], min(PATIENCE, limit))
        except dist.DistStoreError:
            if limit <= PATIENCE:
                raise
            logger.warning(
                "this process has waited %d s at %s for process %d to write %s. If the path differs between processes "
                "(a time stamp, a temporary directory), make it on one process and broadcast it.",
                PATIENCE.total_seconds(),
                checks.here(),
                writer,
                os.fspath(path),
            )
            patient.wait([key], limit - PATIENCE)
    said: list[str] | None = json.loads(store.get(key))
    return said


def _is_reachable() -> bool:
    try:
        _store().check(["crosstrain"])
    except RuntimeError:
        return False
    return True


def _kind(name: str) -> type[Exception]:
    kind = getattr(builtins, name, RuntimeError)
    is_one = issubclass(kind, _KINDS) and not issubclass(kind, UnicodeError)  # which takes five arguments
    return kind if is_one else RuntimeError
