"""The rows that a loop has taken from a prepared loader, counted during the pass and kept after it."""

from __future__ import annotations

from crosstrain.data.sharding import Counts


class PassRows:
    """The rows of the batches that a pass has given out.

    held: on this rank, with those that only complete a batch. held_by_all: on all ranks. last: of the last batch.
    completed: whether some rows only complete a batch.
    """

    def __init__(self, name: str, rank: int) -> None:
        self.name = name
        self.held = self.held_by_all = 0
        self.last: Counts | None = None
        self.completed = False
        self._rank = rank
        self._batches = 0
        self._ended_in: tuple[PassRows, int] | None = None

    def add(self, counts: Counts) -> None:
        """Count one more batch."""
        self.held += counts.rows[self._rank]
        self.held_by_all += sum(counts.rows)
        self.last = counts
        self.completed = self.completed or counts.rows != counts.real
        self._batches += 1

    def end(self, outer: PassRows | None) -> None:
        """End the pass; ``outer`` is the pass in whose loop it ran."""
        self._ended_in = None if outer is None else (outer, outer._batches)

    def ended_beside(self, outer: PassRows | None) -> bool:
        """Whether the pass ended while ``outer`` was at its present batch; None: outside every loop."""
        return self._ended_in == (None if outer is None else (outer, outer._batches))
