"""Collectives of a device that have been started and are not complete. Waiting for them returns at once, so only this
record shows that one of them hangs."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple

APART = 0.1  # seconds between two that are remembered; that is enough, because a device works in order


class _Started(NamedTuple):
    number: int
    operation: str
    work: Any

    @property
    def is_over(self) -> bool:
        try:
            return bool(self.work.is_completed())
        except RuntimeError:  # the backend has given up and reports that itself
            return True


class PendingWork:
    """Knows the oldest incomplete collective of a device. One thread calls `add`, another one `oldest`."""

    def __init__(self) -> None:
        self._remembered: deque[_Started] = deque()
        self._latest: _Started | None = None
        self._number = 1
        self._last = 0.0

    def add(self, operation: str, work: Any) -> None:
        """Note that a collective has been started. The latest one is always remembered, and some of the others."""
        self._number += 1
        # Positive numbers belong to the host's.
        latest = self._latest = _Started(-self._number, operation, work)
        now = time.monotonic()
        if now - self._last >= APART:
            self._last = now
            self._remembered.append(latest)

    def oldest(self) -> tuple[int, str]:
        """The number and operation of the oldest incomplete collective; (0, "") if all are complete."""
        while self._remembered:
            first = self._remembered[0]
            if not first.is_over:
                return first.number, first.operation
            self._remembered.popleft()
        latest = self._latest
        if latest is None or latest.is_over:
            return 0, ""
        return latest.number, latest.operation
