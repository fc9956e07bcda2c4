"""Iterable data sets that give each process its own part: read by one process for all, the other parts are lost.

Two facts tell them: attributes that hold the rank, or another list of files on each process, compared at `prepare`;
and the question for the rank while the first row is read, whoever asks it by whatever name. A data set that needs
the rank for something else is read by process 0 for all with ``dispatch_batches=True``, which is not checked.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from multiprocessing.queues import Queue
from types import CodeType, FrameType
from typing import Any

from crosstrain.utils import checks
from crosstrain.utils.checks import Place
from crosstrain.utils.script_frames import is_users

_VARIABLES = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_THE_RANK = "the process's rank"
_MOST = 100_000  # longer lists are rows, not files

REMEDY = (
    "If it gives each process its own part, the other parts are lost: let it yield all rows (`prepare` deals them "
    "out), or do not prepare its loader. If it needs the rank for something else, choose dispatch_batches=True: "
    "process 0 reads for all."
)


_TELLERS: set[CodeType] = set()


def tells_rank(function: Callable[..., int]) -> Callable[..., int]:
    """Decorator of ours that tell a script its rank: a data set that asks while it is read is noticed."""
    _TELLERS.add(function.__code__)
    return function


def attributes(dataset: Any, rank: int) -> dict[str, str]:
    """What a data set holds that may be one process's part, short enough to compare."""
    found = {}
    for name, value in vars(dataset).items() if hasattr(dataset, "__dict__") else ():
        if type(value) is int and value == rank and "seed" not in name:
            found[name] = _THE_RANK
        elif isinstance(value, (list, tuple)) and len(value) <= _MOST and _is_plain(value):
            found[name] = f"{len(value)} values from {value[0]!r}" if value else "empty"
    return found


def difference(by_rank: list[dict[str, str]], data: str) -> str | None:
    """Which attribute says that each process reads its own part, in words; None if none does."""
    for name in by_rank[0]:
        values = [found.get(name, "") for found in by_rank]
        if set(values) == {_THE_RANK}:
            return (
                f"the data set {data} is not the same on all processes: its `{name}` is {_THE_RANK}. {REMEDY}"
            )
        if "" not in values and _THE_RANK not in values and len(set(values)) > 1:
            other = next(value for value in values if value != values[0])
            return (
                f"the data set {data} is not the same on all processes: its `{name}` is {values[0]} on process 0 "
                f"and {other} on another. {REMEDY}"
            )
    return None


class RankWatch:
    """Notices who asks for the process's rank while the first row of a data set is read.

    In a `with` block it listens to the calls of Python functions in this thread; not while a profiler does.
    """

    def __init__(self, data: str) -> None:
        self.data = data
        self.asked: Place | None = None
        self.over = False

    def __enter__(self) -> None:
        if not self.over and sys.getprofile() is None:
            sys.setprofile(self._heard)

    def __exit__(self, *_: object) -> None:
        if sys.getprofile() == self._heard:
            sys.setprofile(None)

    def first(self, source: Iterator[Any]) -> Iterator[Any]:
        """The items of the source, the first one read under watch.

        Raises RuntimeError behind it if the rank was asked for, since iter() of the data set.
        """
        if self.over:
            return source
        return self._watched(source)

    def _watched(self, source: Iterator[Any]) -> Iterator[Any]:
        with self:
            ahead = list(islice(source, 1))
        self.over = True
        if self.asked is not None:
            raise RuntimeError(self.failed())
        yield from ahead
        yield from source

    def failed(self) -> str:
        message = f"{self.asked}: the data set {self.data} asks for {_THE_RANK} while it is read. {REMEDY}"
        checks.failed("loader", message, self.asked)
        return message

    def _heard(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self.asked is None and (caller := _asks(frame)) is not None:
            self.asked = Place(caller.f_code.co_filename, caller.f_lineno)


class WatchedWorker:
    """A `worker_init_fn` that watches the worker's first batch, after the user's own."""

    def __init__(self, data: str, inner: Callable[[int], None] | None) -> None:
        self.data = data
        self.inner = inner

    def __call__(self, worker: int) -> None:
        if self.inner is not None:
            self.inner(worker)
        if sys.getprofile() is None:
            self._watch = RankWatch(self.data)
            sys.setprofile(self._heard)

    def _heard(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code is Queue.put.__code__:  # the batch goes to the process that wanted it
            sys.setprofile(None)
            return
        self._watch._heard(frame, event, argument)
        if self._watch.asked is not None:
            sys.setprofile(None)
            raise RuntimeError(self._watch.failed())


def _asks(frame: FrameType) -> FrameType | None:
    """The user's frame that asks for the rank, if ``frame`` is that of a function that tells it."""
    caller = frame.f_back
    if frame.f_code is _environment():
        if frame.f_locals.get("key") not in _VARIABLES:
            return None
        while caller is not None and caller.f_globals.get("__name__") in (
            "os",
            "_collections_abc",
            "collections.abc",
        ):
            if caller.f_code.co_name == "__contains__":  # only whether there is one
                return None
            caller = caller.f_back
    elif frame.f_code not in _tellers() and frame.f_code not in _TELLERS:
        return None
    return caller if caller is not None and is_users(caller.f_code.co_filename) else None


@cache
def _environment() -> CodeType:
    return type(os.environ).__getitem__.__code__


@cache
def _tellers() -> frozenset[CodeType]:
    """torch's functions that tell the rank."""
    from torch import distributed

    if not distributed.is_available():
        return frozenset()
    return frozenset(tell.__code__ for tell in (distributed.get_rank, distributed.get_node_local_rank))


def _is_plain(values: Any) -> bool:
    return all(type(value) in (int, str) for value in values)
