"""What a rule may look at, and how it names the source lines involved."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from crosstrain_verify.records.traces import RankTrace, source_line
from crosstrain_verify.report.report import Difference, Run

CLOSE = 2e-3  # relative error up to which a ratio counts as the exact factor
FACTORS = range(2, 65)


@dataclass(frozen=True)
class Evidence:
    """The traces and the difference between them. frozen: the difference was found between frozen runs."""

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
        """What differs; "" for a run that failed or hangs."""
        return self.difference.quantity if self.difference else ""

    @property
    def found(self) -> Difference:
        """The difference, for rules about a quantity."""
        assert self.difference is not None
        return self.difference

    def values(self, kind: Literal["loss", "step"], position: int = 0) -> list[tuple[float, float]]:
        """(original, mean over the ranks) of one value of every loss or step."""
        ours = [event.values[position] for event in self.original.events_of(kind)]
        theirs = [[event.values[position] for event in rank.events_of(kind)] for rank in self.ranks]
        return [(a, math.fsum(b) / len(b)) for a, b in zip(ours, zip(*theirs, strict=False), strict=False)]


def steps(trace: RankTrace) -> tuple[str, ...]:
    return places(trace, "step")


def places(trace: RankTrace, kind: Literal["loss", "step"]) -> tuple[str, ...]:
    """The source line of the first such event that has one."""
    return tuple(source_line(event.place) for event in trace.events_of(kind) if event.place)[:1]


def factor_of(a: float, b: float) -> str | None:
    """Such as "4 times as large" if b is that multiple of a, or "divided by 4"; None if it is neither."""
    if not a or not b or not math.isfinite(a) or not math.isfinite(b):
        return None
    for factor in FACTORS:
        if math.isclose(b, a * factor, rel_tol=CLOSE):
            return f"{factor} times as large"
        if math.isclose(b * factor, a, rel_tol=CLOSE):
            return f"divided by {factor}"
    return None
