"""The runs of the migrated script that are compared with one process of the original, and the verdict on each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from crosstrain_verify.judging.causes import Evidence, likely_cause
from crosstrain_verify.judging.compare import (
    Comparison,
    compare,
    compare_trained_parameters,
    global_events,
    out_of_order,
    ranks_disagree,
)
from crosstrain_verify.judging.noise import beyond_noise
from crosstrain_verify.judging.original_runs import SINGLE, OriginalRuns
from crosstrain_verify.judging.passes import whole_loaders
from crosstrain_verify.judging.printed_lines import Volatile, about
from crosstrain_verify.judging.random_numbers import whose
from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.report.report import Difference, Run, Verdict
from crosstrain_verify.running.runs import Finished, Runner, Variant, launch_line

Expectation = Literal["equal", "agree"]
JUMP = 1e6  # from one step to the next rounding grows by less than this, even in chaotic training
AFTER_LOSS = ("gradient norm", "weight norm", "learning rate")


class MigratedRuns:
    """Runs the migrated script and compares each run with those of the original."""

    def __init__(
        self, runner: Runner, originals: OriginalRuns, after: Path, ignore: Sequence[re.Pattern[str]]
    ) -> None:
        self._runner = runner
        self._originals = originals
        self._original = originals.trace
        self._after = after
        self._ignore = ignore
        self._volatile: Volatile | None = None  # not known yet
        self.on_runtime = True  # as far as is known
        self._reference = originals.trace  # what the last run was compared with

    def judge(self, world: int, expect: Expectation) -> Run:
        """Run the script on ``world`` processes; the run with its verdict."""
        name = "1 process" if world == 1 else f"{world} processes"
        self._reference = self._original
        done = self._runner.run(self._after, Variant(name, True, world))
        if done.run.verdict.ok:
            self.on_runtime = done.ranks[0].on_runtime
        launch = launch_line(self._after, world, shared=world > 1, on_runtime=self.on_runtime)
        run = replace(self._verdict(done, expect), launch=launch)
        run = replace(run, notes=(*run.notes, *filter(None, [whose(done.ranks)])))
        evidence = Evidence(self._reference, done.ranks, run, run.difference)
        return replace(run, cause=likely_cause(evidence), losses=losses_of(done.ranks))

    def _verdict(self, done: Finished, expect: Expectation) -> Run:
        """The run with its verdict; one that failed keeps the verdict it has."""
        run, ranks = done.run, done.ranks
        if not run.verdict.ok:
            return run
        if expect == "agree" and len(ranks) > 1:
            found = ranks_disagree(ranks) or compare_trained_parameters(
                self._original, ranks[0], step_by_step=False
            )
            return with_verdict(run, Comparison(found), Verdict.AGREE)
        good = Verdict.IDENTICAL if len(ranks) == 1 else Verdict.EQUAL
        run = with_verdict(run, self.compare(self._original, ranks), good)
        if run.verdict.ok:
            return run
        if len(ranks) == 1:
            return self._against_itself(run, done)
        if self._original.draws or self._original.statistics:
            return self._against_shares(run, done)
        return self._in_double(run, done, Variant("")) or run

    def compare(
        self, original: RankTrace, ranks: Sequence[RankTrace], epsilon: float | None = None
    ) -> Comparison:
        """Compare. If only a printed line differs, compare again without the numbers that differ in every run."""
        result = compare(original, ranks, self._ignore, epsilon=epsilon, volatile=self._volatile)
        if self._volatile is None and result.difference and result.difference.quantity == "printed line":
            self._volatile = self._originals.volatile()
            result = compare(original, ranks, self._ignore, epsilon=epsilon, volatile=self._volatile)
        if self._volatile and result.difference is None:
            result.notes.append(about(self._volatile))
        return result

    def _against_itself(self, run: Run, done: Finished) -> Run:
        """Judge one process that differs: a second run of the original may differ from the first, too."""
        again = self._originals.again()
        if again is None or self.compare(self._original, [again]).difference is None:
            return run
        return judge_by_noise(run, [self._original, again], done, "another run of the original")

    def _against_shares(self, run: Run, done: Finished) -> Run:
        """Judge several processes that may differ: compare them with a run of the original that draws share by share."""
        world = len(done.ranks)
        whole = whole_loaders(self._original, done.ranks)
        shared = self._originals.drawing_as(world, whole)
        if shared is None:
            return run
        self._reference = shared
        what = "random draws" if not self._original.statistics else "random draws and batch statistics"
        against = f"the original with {what} taken for each process's rows by themselves"
        equal = with_verdict(done.run, self.compare(shared, done.ranks), Verdict.EQUAL)
        equal = replace(equal, against=against, compared=losses_of([shared]))
        if equal.verdict.ok:
            return equal
        exact = self._in_double(equal, done, Variant("", shares=world, whole=whole))
        if exact is not None:
            return exact
        other = self._originals.drawing_as(world + 1, whole)
        members = [self._original, shared, *([other] if other else [])]
        return judge_by_noise(equal, members, done, "other random numbers")

    def _in_double(self, run: Run, done: Finished, reference: Variant) -> Run | None:
        """Repeat the comparison in double precision, where amplified rounding is far smaller and a mistake is not.

        Returns the run as EQUAL if both scripts agree there, unchanged if they certainly differ, and None if that cannot
        be told. Equal losses in a step show that its random draws were equal, so everything after the loss must be, too.

        Training amplifies double precision's rounding as well, so the tolerance is that of single precision. Differences
        between ranks, in files, in batches and in the order of events do not depend on the precision, and a run in less
        than single precision cannot be repeated; both return None.
        """
        assert run.difference is not None
        if run.difference.quantity in ("ranks", "files", "batch", "order") or self._originals.coarse:
            return None
        world = len(done.ranks)
        ours = self._originals.under(replace(reference, name="original, float64", double=True))
        theirs = self._runner.run(self._after, Variant(f"{done.run.name}, float64", True, world, double=True))
        if ours is None or not theirs.run.verdict.ok:
            return None
        result = self.compare(ours, theirs.ranks, epsilon=SINGLE)
        step = result.difference.step if result.difference else None
        if step is not None and step > (run.difference.step or step) and is_amplified_rounding(result):
            result.difference = None
            result.notes.append(
                f"equal until step {step}; from there on rounding has grown beyond what can be compared, in float64 as "
                "well"
            )
        if result.difference is not None:
            return run if result.difference.quantity in AFTER_LOSS and not ours.redrew else None
        note = f"rounding was amplified in float32 ({run.difference}); in float64 it makes no difference"
        return with_verdict(
            replace(run, difference=None, notes=(*done.run.notes, note)), result, Verdict.EQUAL
        )


def with_verdict(run: Run, result: Comparison, good: Verdict) -> Run:
    """The run with the result of a comparison. good: the verdict if nothing differs."""
    return replace(
        run,
        verdict=Verdict.DIFFERENT if result.difference else good,
        difference=result.difference,
        largest=result.largest,
        notes=(*run.notes, *result.notes),
    )


def is_amplified_rounding(result: Comparison) -> bool:
    """Whether an error in double precision has grown out of rounding, step by step. A mistake is large at once."""
    found = result.difference
    if found is None or found.quantity not in (*AFTER_LOSS, "loss"):
        return False
    before = max((result.largest.get(name, 0.0) for name in ("loss", "gradient norm")), default=0.0)
    value, other = float(found.original), float(found.migrated)
    return 0 < abs(value - other) < JUMP * before * abs(value)


def judge_by_noise(run: Run, members: Sequence[RankTrace], done: Finished, what: str) -> Run:
    """Judge a run that differs by the spread of the original's own runs.

    members: runs of the original that differ in ``what``, such as "other random numbers".
    """
    if any(len(member.events) != len(members[0].events) for member in members):
        reason = f"could not decide, because {what} give the original another number of steps"
        return replace(run, verdict=Verdict.UNDECIDED, notes=(*run.notes, reason))
    beyond: Difference | None = beyond_noise(members, done.ranks)
    if beyond is not None:
        return replace(run, notes=(*run.notes, f"beyond the original's own noise: {beyond}"))
    if run.difference is not None and run.difference.quantity in ("ranks", "files", "batch"):
        return run  # noise does not explain these
    notes = (
        f"what differs first: {run.difference}",
        f"judged by the spread of {len(members)} runs of the original, with {what}",
    )
    return replace(run, verdict=Verdict.NOISE, difference=None, notes=(*run.notes, *notes))


def losses_of(ranks: Sequence[RankTrace]) -> tuple[float, ...]:
    """The global loss of every backward pass; rank 0's loss if the ranks are out of step."""
    events = ranks[0].events if out_of_order(ranks) else global_events(ranks)
    return tuple(event.values[0] for event in events if event.kind == "loss")
