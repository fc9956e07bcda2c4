"""Checks that the runtime makes at places of the user's script, and the journal of what came of them.

A check has a kind ("rows", "mean", ...) and a place: the line of the user's script that made the call. What depends on
the data is checked at a place's first use and wherever it can fail, not in every step; `first_use` tells.

With CROSSTRAIN_CHECKS=FILE every process appends to FILE one line of JSON for each place and kind: whether the check
held, failed, or was not reached (the line ran, but never with anything that could have been checked). Of two lines
about one place the later counts, but a failure stays. ``migrate --verify`` reads it to say which assumptions were
proven.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from pathlib import Path
from types import CodeType
from typing import NamedTuple

from crosstrain.utils.script_frames import users_frame

JOURNAL = "CROSSTRAIN_CHECKS"
HELD, FAILED, NOT_REACHED = "held", "failed", "not reached"
_DOUBTED = "doubted"  # written as not reached


class Place(NamedTuple):
    """A line of the user's script."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


UNKNOWN = Place("an unknown line", 0)

_status: dict[tuple[str, Place], str] = {}
_used: set[tuple[str, CodeType | None, int]] = set()


def here() -> Place:
    """The innermost line outside this package and torch: the one to name in a message."""
    frame = users_frame(sys._getframe(1))
    return UNKNOWN if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)


def here_in_main() -> Place:
    """`here`, also in a thread of autograd's (a hook's, on a device): then where the main thread waits."""
    frame = users_frame(sys._getframe(1))
    if frame is None:
        frame = users_frame(sys._current_frames().get(threading.main_thread().ident or 0))
    return UNKNOWN if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)


def first_use(kind: str) -> bool:
    """Whether the calling line of the user's script comes here for the first time; cheap enough for every step.

    Two calls on one line are two places.
    """
    frame = users_frame(sys._getframe(1))
    key = (kind, None, 0) if frame is None else (kind, frame.f_code, frame.f_lasti)
    if key in _used:
        return False
    _used.add(key)
    return True


def expect(kind: str, place: Place | None = None) -> None:
    """A check of this kind belongs to the place; until it is made, it counts as not reached."""
    _status.setdefault((kind, place or here()), NOT_REACHED)


def doubt(kind: str, place: Place | None = None) -> None:
    """Something at the place cannot be checked: it counts as not reached, whatever else holds there."""
    key = (kind, place or here())
    if _status.get(key) != FAILED:
        _status[key] = _DOUBTED


def held(kind: str, place: Place | None = None) -> None:
    """The check was made and held. A failure or a doubt that was recorded before stays."""
    key = (kind, place or here())
    if _status.get(key, NOT_REACHED) == NOT_REACHED:
        _status[key] = HELD
        _write(key, HELD)


def failed(kind: str, message: str, place: Place | None = None) -> None:
    """The check failed; ``message`` is what the user is told."""
    key = (kind, place or here())
    if _status.get(key) != FAILED:
        _status[key] = FAILED
        _write(key, FAILED, message)


def reset() -> None:
    """Forget every place: a new run begins. What was not reached by now stays in the journal as that."""
    _write_what_was_not_reached()
    _status.clear()
    _used.clear()


def _write(key: tuple[str, Place], status: str, message: str = "") -> None:
    target = os.environ.get(JOURNAL)
    if not target:
        return
    kind, place = key
    entry = {"rank": int(os.environ.get("RANK", 0)), "kind": kind, "file": place.file, "line": place.line}
    entry |= {"status": status} | ({"message": message} if message else {})
    with Path(target).open(
        "a", encoding="utf-8"
    ) as journal:  # one write: lines of several processes do not mix
        journal.write(json.dumps(entry) + "\n")


@atexit.register
def _write_what_was_not_reached() -> None:
    for key, status in _status.items():
        if status in (NOT_REACHED, _DOUBTED):
            _write(key, NOT_REACHED)
