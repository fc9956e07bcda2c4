"""Compares processes that take batches of their own with the original, given all the rows of each of their steps at once.

It needs nothing from the library that the result was written for. All steps are undone, so a step's loss and gradient
depend on its rows alone, and not on the order in which the processes take them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from crosstrain_verify.judging.compare import Comparison, compare_events
from crosstrain_verify.judging.original_runs import OriginalRuns
from crosstrain_verify.judging.tolerance import Tolerance
from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.running.runs import Finished, Runner, Variant

VALUES = 2  # gradient norm and weight norm: learning rates follow the passes, which are shorter


@dataclass(frozen=True)
class SameRows:
    """The result. ours, theirs: what was compared. reason: why nothing could be compared; "" if it was."""

    result: Comparison
    ours: RankTrace | None = None
    theirs: Sequence[RankTrace] = ()
    reason: str = ""


def compare_same_rows(
    runner: Runner, originals: OriginalRuns, after: Path, variant: Variant, done: Finished
) -> SameRows:
    """Compare a frozen run that kept its batches. variant: how it was made; it runs again if its rows affect each other."""
    trace = originals.trace
    if trace.draws or trace.statistics:
        variant = replace(variant, name=f"{variant.name}, row by row", row_by_row=True)
        done = runner.run(after, variant)
    if not done.run.verdict.ok or not variant.keep:
        return SameRows(Comparison(), reason="no loader feeds the training")
    again = Variant(
        "original, given the same rows",
        frozen=True,
        cut_short=variant.cut_short,
        leave_out=variant.leave_out,
        replay=str(done.kept),
        row_by_row=variant.row_by_row,
    )
    ours = originals.under(again)
    if ours is None or ours.mixed:
        return SameRows(
            Comparison(), reason=originals.failure or "the processes' batches cannot be joined to one"
        )
    result = Comparison()
    ranks = [_without_rates(rank) for rank in done.ranks]
    result.difference = compare_events(_without_rates(ours), ranks, Tolerance(trace.epsilon), result)
    if result.difference and ours.draws:
        return SameRows(
            Comparison(), reason=f"training draws random numbers, and differs: {result.difference}"
        )
    return SameRows(result, ours, done.ranks)


def _without_rates(trace: RankTrace) -> RankTrace:
    events = (replace(event, values=event.values[:VALUES]) for event in trace.events)
    return replace(trace, events=tuple(events))
