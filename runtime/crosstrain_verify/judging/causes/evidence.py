"""What a rule may look at, and how it names the lines involved."""

from __future__ import annotations

import math
from dataclasses import dataclass

from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.report.report import Difference, Run

CLOSE = 2e-3  # relative: a ratio that is meant, after rounding
FACTORS = range(2, 65)


@dataclass(frozen=True)
class Evidence:
    """What a rule may look at. `frozen`: the difference was found between frozen runs."""

    original: RankTrace
    ranks: tuple[RankTrace, ...]
    run: Run
    difference: Difference | None
    frozen: bool = False

    @property
    def world(self) -> int:
        return len(self.ranks)

    @property
    def quantity(self) -> str:
        return self.difference.quantity if self.difference else ""

    def values(self, kind: str, rank: int | None = None, position: int = 0) -> list[tuple[float, float]]:
        """(original, migrated) of every loss or step, the mean over the ranks or one rank's."""
        ours = [event.values[position] for event in self.original.events if event.kind == kind]
        chosen = self.ranks if rank is None else (self.ranks[rank],)
        theirs = [[event.values[position] for event in r.events if event.kind == kind] for r in chosen]
        return [(a, math.fsum(b) / len(b)) for a, b in zip(ours, zip(*theirs, strict=False), strict=False)]


def steps(trace: RankTrace) -> tuple[str, ...]:
    return places(trace, "step")


def places(trace: RankTrace, kind: str) -> tuple[str, ...]:
    """The first line that makes such an event."""
    found = [event.place.rpartition(":")[0] for event in trace.events if event.kind == kind and event.place]
    return tuple(dict.fromkeys(found))[:1]


def factor_of(a: float, b: float) -> str | None:
    """ "4 times as large" where b is a multiple of a, "divided by 4" where it is a fraction."""
    if not a or not b or not math.isfinite(a) or not math.isfinite(b):
        return None
    for factor in FACTORS:
        if math.isclose(b, a * factor, rel_tol=CLOSE):
            return f"{factor} times as large"
        if math.isclose(b * factor, a, rel_tol=CLOSE):
            return f"divided by {factor}"
    return None
