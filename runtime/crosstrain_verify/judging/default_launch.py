"""The default launch with every step undone: each process takes its own batches, and evaluation sets divide unevenly.

A script that does not run on the bundled runtime has no other launch. Its losses and gradients are compared, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from crosstrain_verify.judging.causes import Evidence, likely_cause
from crosstrain_verify.judging.compare import Comparison, compare_events
from crosstrain_verify.judging.evaluation import compare_frozen
from crosstrain_verify.judging.migrated_runs import losses_of, with_verdict
from crosstrain_verify.judging.original_runs import OriginalRuns
from crosstrain_verify.judging.passes import batches_of, evaluation_loaders, training_loaders, unshared
from crosstrain_verify.judging.printed_lines import volatile
from crosstrain_verify.judging.random_numbers import same_noise, whose
from crosstrain_verify.judging.tolerance import Tolerance
from crosstrain_verify.records.journal import Check
from crosstrain_verify.records.traces import RankTrace, source_line
from crosstrain_verify.report.report import Difference, Run, Verdict
from crosstrain_verify.running.runs import Finished, Runner, Variant, launch_line

AGAINST = "the original, with the weights of both frozen"
ONLY_EVEN = "evaluations were compared on sets that the processes share evenly, as they are; others may count differently"
SAME_ROWS = "the original, given the rows of all processes in each step, with the weights of both frozen"


class DefaultLaunch:
    """Compares processes that take batches of their own with an original that trains as briefly as they do."""

    def __init__(
        self,
        runner: Runner,
        originals: OriginalRuns,
        world: int,
        ignore: Sequence[re.Pattern[str]],
        *,
        on_runtime: bool = True,
    ) -> None:
        self._runner = runner
        self._originals = originals
        self._world = world
        self._on_runtime = on_runtime
        self._ignore = ignore
        trace = originals.trace
        loaders = training_loaders(trace)
        self._rows = max((batch.rows or 0 for batch in batches_of(trace, loaders)), default=0)
        self._training = tuple(sorted(loaders))
        self._uneven = _uneven(trace, world)
        self._loses_rows = False  # whether the ranks left out more rows of an evaluation than the original

    @property
    def _fewer(self) -> tuple[tuple[int, int], ...]:
        return (*self._uneven, *((loader, self._rows + 1) for loader in self._training))

    def judge(self, after: Path) -> Run:
        """Run the script; the run with its verdict: ranks must agree, and evaluations print what the original's do."""
        run = self._judge(after)
        differs = run.difference is not None and run.difference.quantity == "evaluation"
        if not differs or self._on_runtime or not self._loses_rows:
            return run
        # A script that shards the set itself leaves out a row on every rank: the whole set is compared.
        self._uneven = ()
        again = self._judge(after)
        return replace(again, notes=(*again.notes, ONLY_EVEN)) if again.verdict.ok else run

    def _judge(self, after: Path) -> Run:
        full = self._frozen("original, frozen", self._uneven)
        less = self._frozen("original, frozen, less data", self._fewer)
        name = f"{self._world} processes"
        variant = Variant(
            f"{name}, default launch" if self._on_runtime else name,
            True,
            self._world,
            own_batches=True,
            frozen=True,
            cut_short=self._training,
            leave_out=self._uneven,
            keep=() if self._on_runtime else self._training,
        )
        done = self._runner.run(after, variant)
        launch = launch_line(after, self._world, shared=False, on_runtime=self._on_runtime)
        run = replace(done.run, launch=launch, against=AGAINST, frozen=True)
        if run.verdict.ok and full is not None and less is not None:
            self._loses_rows = sum(map(_evaluated, done.ranks)) < _evaluated(full)
            run = self._compared(run, full, less, done)
            if run.verdict.ok and not self._on_runtime:
                return self._with_losses(run, after, variant, done)
        elif run.verdict.ok:
            failure = self._originals.failure
            reason = f"could not decide, because the original fails when its weights are frozen: {failure}"
            run = replace(run, verdict=Verdict.UNDECIDED, notes=(*run.notes, reason))
        evidence = Evidence(full or self._originals.trace, done.ranks, run, run.difference, frozen=True)
        about = (self._what_changes(),) if self._on_runtime else ()
        return replace(run, cause=likely_cause(evidence), notes=(*run.notes, *about))

    def _with_losses(self, run: Run, after: Path, variant: Variant, done: Finished) -> Run:
        """The run with the verdict on its losses and gradients, where the rest agrees.

        The original is given all the rows of each of their steps at once, which needs nothing from the library that the
        result was written for. All steps are undone, so a step's loss and gradient depend on its rows alone, and not on the
        order in which the processes take them.
        """
        trace = self._originals.trace
        if trace.draws or trace.statistics:  # their rows affect each other
            variant = replace(variant, name=f"{variant.name}, row by row", row_by_row=True)
            done = self._runner.run(after, variant)
        if not done.run.verdict.ok or not variant.keep:
            return _not_compared(run, "no loader feeds the training")
        again = Variant(
            "original, given the same rows",
            frozen=True,
            cut_short=variant.cut_short,
            leave_out=variant.leave_out,
            replay=str(done.kept),
            row_by_row=variant.row_by_row,
        )
        ours = self._originals.under(again)
        if ours is None or ours.mixed:
            reason = self._originals.failure or "the processes' batches cannot be joined to one"
            return _not_compared(run, reason)
        result = Comparison()
        ranks = [_without_rates(rank) for rank in done.ranks]
        result.difference = compare_events(_without_rates(ours), ranks, Tolerance(trace.epsilon), result)
        if result.difference and ours.draws:
            return _not_compared(run, f"training draws random numbers, and differs: {result.difference}")
        run = replace(with_verdict(run, result, Verdict.EQUAL), against=SAME_ROWS)
        run = replace(run, losses=losses_of(done.ranks), compared=losses_of([ours]))
        evidence = Evidence(ours, done.ranks, run, run.difference, frozen=True)
        return replace(run, cause=likely_cause(evidence))

    def _frozen(self, name: str, leave_out: tuple[tuple[int, int], ...]) -> RankTrace | None:
        return self._originals.under(
            Variant(name, shares=self._world, frozen=True, cut_short=self._training, leave_out=leave_out)
        )

    def _compared(self, run: Run, full: RankTrace, less: RankTrace, done: Finished) -> Run:
        result = compare_frozen(full, less, done.ranks, self._ignore)
        if batch := unshared(full, done.ranks):
            run = replace(run, checks=tuple(map(_failed, run.checks)))
            result.difference = Difference(
                "batch", 1, "a share of the rows", "all rows on every process", source_line(batch.place)
            )
        result.difference = result.difference or same_noise(done.ranks)
        result.notes += filter(None, [whose(done.ranks)])
        if result.difference is not None and result.difference.quantity == "evaluation":
            again = self._frozen("original, frozen, again", self._uneven)
            never = volatile(full.lines, again.lines) if again is not None else {}
            notes, result = result.notes, compare_frozen(full, less, done.ranks, self._ignore, never)
            result.notes += notes
        return with_verdict(run, result, Verdict.AGREE)

    def _what_changes(self) -> str:
        rows, world = self._rows, self._world
        if not self._training:
            return "no loader feeds the training, so every process does the same work"
        batch = f"{rows} x {world} = {rows * world} rows" if rows else f"{world} times the script's batch"
        return (
            f"without --split-batches a step takes {batch}, an epoch has 1/{world} of the steps and the learning rate "
            "is the same: that is a different training, so it is not compared with one process"
        )


def _not_compared(run: Run, reason: str) -> Run:
    return replace(run, notes=(*run.notes, f"losses and gradients were not compared: {reason}"))


def _without_rates(trace: RankTrace) -> RankTrace:
    """Gradient and weight norms alone: learning rates follow the passes, which are shorter."""
    events = (replace(event, values=event.values[:2]) for event in trace.events)
    return replace(trace, events=tuple(events))


def _evaluated(trace: RankTrace) -> int:
    return sum(batch.rows or 0 for batch in batches_of(trace, evaluation_loaders(trace)))


def _failed(check: Check) -> Check:
    """A check, failed if it was one of a loader and did not find a prepared one."""
    return (
        replace(check, status="failed") if (check.kind, check.status) == ("loader", "not reached") else check
    )


def _uneven(trace: RankTrace, world: int) -> tuple[tuple[int, int], ...]:
    """(loader, 1) for every evaluation set that the processes would share evenly: it is given one sample less."""
    found = []
    for loader in evaluation_loaders(trace):
        rows = 0
        for batch in batches_of(trace, {loader}):
            rows = (0 if batch.first else rows) + (batch.rows or 0)
        if rows and rows % world == 0:
            found.append((loader, 1))
    return tuple(found)
