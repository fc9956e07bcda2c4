"""Checks that the runtime makes at places of the user's script, and the journal of their results.

A check has a kind ("rows", "mean", ...) and a place: the line of the user's script that made the call. What depends on the
data is checked when a place is first used and wherever it can fail, but not in every step; see `first_use`.

With CROSSTRAIN_CHECKS=FILE every process appends to FILE a line of JSON for each place and kind: whether the check held,
failed, or was not reached (the line ran, but never with anything that could be checked). Of two lines about one place the
later counts, but a failure stays. ``migrate --verify`` reads the file to say which assumptions were proven.
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
_DOUBTED = "doubted"  # the journal gets "not reached"


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
    """The innermost line of the user's script, for messages."""
    frame = users_frame(sys._getframe(1))
    return UNKNOWN if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)


def here_in_main() -> Place:
    """`here`, but in a thread of autograd's (a hook on a device) the line at which the main thread waits."""
    frame = users_frame(sys._getframe(1))
    if frame is None:
        frame = users_frame(sys._current_frames().get(threading.main_thread().ident or 0))
    return UNKNOWN if frame is None else Place(frame.f_code.co_filename, frame.f_lineno)


def first_use(kind: str) -> bool:
    """Whether the calling place of the user's script asks for the first time. It is cheap enough for every step.

    Two calls on one line are two places.
    """
    frame = users_frame(sys._getframe(1))
    key = (kind, None, 0) if frame is None else (kind, frame.f_code, frame.f_lasti)
    if key in _used:
        return False
    _used.add(key)
    return True


def expect(kind: str, place: Place | None = None) -> None:
    """Announce a check of this kind for a place; until it is made, it counts as not reached."""
    _status.setdefault((kind, place or here()), NOT_REACHED)


def doubt(kind: str, place: Place | None = None) -> None:
    """Note that something at the place cannot be checked. It counts as not reached, whatever else holds there."""
    key = (kind, place or here())
    if _status.get(key) != FAILED:
        _status[key] = _DOUBTED


def held(kind: str, place: Place | None = None) -> None:
    """Note that the check held. An earlier failure or doubt stays."""
    key = (kind, place or here())
    if _status.get(key, NOT_REACHED) == NOT_REACHED:
        _status[key] = HELD
        _write(key, HELD)


def failed(kind: str, message: str, place: Place | None = None) -> None:
    """Note that the check failed. message: the error that the user gets."""
    key = (kind, place or here())
    if _status.get(key) != FAILED:
        _status[key] = FAILED
        _write(key, FAILED, message)


def reset() -> None:
    """Forget every place, because a new run begins. Checks that were not reached are written to the journal first."""
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
    ) as journal:  # one write for each line, so that lines of several processes do not mix
        journal.write(json.dumps(entry) + "\n")


@atexit.register
def _write_what_was_not_reached() -> None:
    for key, status in _status.items():
        if status in (NOT_REACHED, _DOUBTED):
            _write(key, NOT_REACHED)
