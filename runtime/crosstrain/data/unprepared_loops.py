"""Whether a `for` loop over a loader that was not prepared is running.

`gather_for_metrics` goes by the innermost prepared loader; in a loop over an unprepared one inside it, the rows are not
that loader's. Only the running code distinguishes such a loop from ``next(iterator)``, which many scripts call once for
each batch of a prepared loader, and from a loop that was broken off while its iterator lives on. So each iterator of an
unprepared loader records the `for` statements that asked for its latest batch, and `looping` tests whether the calling
code is inside one of them.
"""

from __future__ import annotations

import dis
import sys
import weakref
from functools import cache, lru_cache
from inspect import CO_GENERATOR
from itertools import count
from types import CodeType, FrameType
from typing import Any, NamedTuple

from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

_FOR = dis.opmap["FOR_ITER"]
_ASKS = {_FOR} | {dis.opmap[name] for name in ("SEND", "YIELD_FROM") if name in dis.opmap}


class Loop(NamedTuple):
    """A `for` statement of a running function: the frame's id, its code, and the statement's offset in it."""

    frame: int
    code: CodeType
    at: int


_ticks = count(1)
_iterators: weakref.WeakSet[Any] = weakref.WeakSet()


def tick() -> int:
    """The next of the numbers that put batches of unprepared loaders and first batches of prepared ones in order of time."""
    return next(_ticks)


def asking(frame: FrameType | None) -> tuple[Loop, ...]:
    """The `for` statements for which ``frame`` runs: several where generators such as tqdm's pass batches on, and none
    for a plain ``next()``.
    """
    found: list[Loop] = []
    while frame is not None and frame.f_code.co_code[frame.f_lasti] in _ASKS:
        found.append(Loop(id(frame), frame.f_code, frame.f_lasti))
        frame = frame.f_back if frame.f_code.co_flags & CO_GENERATOR else None
    return tuple(found)


def looping(since: int, but: tuple[Loop, ...]) -> bool:
    """Whether the caller runs inside a `for` loop over an unprepared loader that gave a batch after ``since``.

    but: loops that do not count, because they run over a prepared loader too (``zip(prepared, unprepared)``).
    """
    loops = {
        loop.frame: loop
        for iterator in list(_iterators)
        if iterator._crosstrain_tick > since and not set(iterator._crosstrain_loops) & set(but)
        for loop in iterator._crosstrain_loops
    }
    frame: FrameType | None = sys._getframe(1) if loops else None
    while frame is not None:
        loop = loops.get(id(frame))
        if (
            loop is not None
            and loop.code is frame.f_code
            and loop.at < frame.f_lasti < _end(loop.code, loop.at)
        ):
            return True
        frame = frame.f_back
    return False


def watch(kind: type[DataLoader[Any]]) -> None:
    """Let iterators of loaders that are not of this ``kind`` record their loops from now on.

    A second call does nothing.
    """
    made = _BaseDataLoaderIter.__init__
    if hasattr(made, "_crosstrain_kind"):
        return

    def __init__(self: Any, loader: Any) -> None:
        if not isinstance(loader, kind):
            self._crosstrain_tick, self._crosstrain_loops = 0, ()
            self.__class__ = _watched(type(self))  # type: ignore[arg-type]
            _iterators.add(self)
        made(self, loader)

    __init__._crosstrain_kind = kind  # type: ignore[attr-defined]
    _BaseDataLoaderIter.__init__ = __init__  # type: ignore[method-assign]


@cache
def _watched(kind: type[Any]) -> type[Any]:
    """A subclass of an iterator's class that records the loops that ask it."""

    def __next__(self: Any) -> Any:
        self._crosstrain_loops = ()  # none, if this ends or fails
        batch = kind.__next__(self)
        self._crosstrain_tick, self._crosstrain_loops = tick(), asking(sys._getframe(1))
        return batch

    names = {"__module__": kind.__module__, "__qualname__": kind.__qualname__, "__doc__": kind.__doc__}
    return type(kind.__name__, (kind,), {**names, "__next__": __next__})


@lru_cache(maxsize=64)
def _end(code: CodeType, at: int) -> int:
    """The offset at which the loop of the `for` statement at ``at`` ends; 0 for a `yield from`, which has no body."""
    steps = (step for step in dis.get_instructions(code) if step.offset == at and step.opcode == _FOR)
    return next((int(step.argval) for step in steps), 0)
