"""Calls with a time limit, for those that may never return because a network link is cut."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")


def within(seconds: float, question: Callable[[], T]) -> T:
    """Return or raise what ``question`` does; TimeoutError after ``seconds``. Its thread is then abandoned."""
    answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put((question(), None))
        except BaseException as error:  # the calling thread raises it
            answers.put((None, error))

    threading.Thread(target=ask, name="crosstrain-question", daemon=True).start()
    try:
        answer, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError(f"no answer for {seconds:.0f} s") from None
    if error is not None:
        raise error
    value: T = answer
    return value
