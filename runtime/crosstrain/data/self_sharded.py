"""Iterable data sets that give each process its own part; where one process reads for all, the other parts are lost.

Two signs show such a data set: attributes that hold the rank, or another list of files on each process, which `prepare`
compares; and code that asks for the rank while the first row is read. A data set that needs the rank for something else
can be read with ``dispatch_batches=True``, which is not checked.
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
    """Decorator for Crosstrain's functions that return the rank: `RankWatch` notices calls of them."""
    _TELLERS.add(function.__code__)
    return function


def attributes(dataset: Any, rank: int) -> dict[str, str]:
    """The attributes of a data set that may hold one process's part, as text short enough to compare."""
    found = {}
    for name, value in vars(dataset).items() if hasattr(dataset, "__dict__") else ():
        if type(value) is int and value == rank and "seed" not in name:
            found[name] = _THE_RANK
        elif isinstance(value, (list, tuple)) and len(value) <= _MOST and _is_plain(value):
            found[name] = f"{len(value)} values from {value[0]!r}" if value else "empty"
    return found


def difference(by_rank: list[dict[str, str]], data: str) -> str | None:
    """A message about the attribute that shows that each process reads its own part; None if none does."""
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
    """Notices code that asks for the process's rank while the first row of a data set is read.

    In a `with` block it follows the calls of Python functions in this thread, unless a profiler already does.
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

        Raises RuntimeError where code has asked for the rank by then.
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
    """A `worker_init_fn` that watches the worker's first batch."""

    def __init__(self, data: str) -> None:
        self.data = data

    def __call__(self, worker: int) -> None:
        if sys.getprofile() is None:
            self._watch = RankWatch(self.data)
            sys.setprofile(self._heard)

    def _heard(self, frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code is Queue.put.__code__:  # the worker sends its batch
            sys.setprofile(None)
            return
        self._watch._heard(frame, event, argument)
        if self._watch.asked is not None:
            sys.setprofile(None)
            raise RuntimeError(self._watch.failed())


def _asks(frame: FrameType) -> FrameType | None:
    """The user's frame that asks for the rank, if ``frame`` is that of a function that returns it; else None."""
    caller = frame.f_back
    if frame.f_code is _environment():
        if frame.f_locals.get("key") not in _VARIABLES:
            return None
        while caller is not None and caller.f_globals.get("__name__") in (
            "os",
            "_collections_abc",
            "collections.abc",
        ):
            if caller.f_code.co_name == "__contains__":  # asks only whether it is set
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
    """torch's functions that return the rank."""
    from torch import distributed

    return frozenset(tell.__code__ for tell in (distributed.get_rank, distributed.get_node_local_rank))


def _is_plain(values: Any) -> bool:
    return all(type(value) in (int, str) for value in values)
