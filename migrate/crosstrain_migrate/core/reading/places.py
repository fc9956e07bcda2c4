"""Which places of the code are to be gone over again: those that asked for something which has changed since."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable


class Places:
    """Places by their numbers, and what each has asked for."""

    def __init__(self) -> None:
        self._askers: dict[Hashable, set[int]] = defaultdict(set)
        self._due: set[int] = set()
        self._here: int | None = None  # the place that is being gone over

    @property
    def are_due(self) -> bool:
        return bool(self._due)

    def begin(self, count: int) -> None:
        """All of so many places are due."""
        self._due = {*range(count)}

    def is_due(self, place: int) -> bool:
        """Whether a place is to be gone over now, as the caller then does."""
        if place not in self._due:
            return False
        self._due.remove(place)
        self._here = place
        return True

    def end(self) -> None:
        self._here = None

    def ask(self, of: Hashable) -> None:
        if self._here is not None:
            self._askers[of].add(self._here)

    def changed(self, what: Hashable) -> None:
        self._due |= self._askers[what]
