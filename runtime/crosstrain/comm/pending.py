"""Collectives of a device that have been started and are not done: their wait returns at once, so somebody must look."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple

APART = 0.1  # seconds between two that are remembered; a device does them in their order


class _Started(NamedTuple):
    number: int
    operation: str
    work: Any

    @property
    def is_over(self) -> bool:
        try:
            return bool(self.work.is_completed())
        except RuntimeError:  # given up by the backend, which says so itself
            return True


class PendingWork:
    """The oldest of a device's collectives that is not done. `add` is for one thread, `oldest` for another."""

    def __init__(self) -> None:
        self._remembered: deque[_Started] = deque()
        self._latest: _Started | None = None
        self._number = 1
        self._last = 0.0

    def add(self, operation: str, work: Any) -> None:
        """A collective has been started. The latest is always remembered, of the others some."""
        self._number += 1
        latest = self._latest = _Started(-self._number, operation, work)  # a host's have positive numbers
        now = time.monotonic()
        if now - self._last >= APART:
            self._last = now
            self._remembered.append(latest)

    def oldest(self) -> tuple[int, str]:
        """Its number and operation; (0, "") where everything is done."""
        while self._remembered:
            first = self._remembered[0]
            if not first.is_over:
                return first.number, first.operation
            self._remembered.popleft()
        latest = self._latest
        if latest is None or latest.is_over:
            return 0, ""
        return latest.number, latest.operation
