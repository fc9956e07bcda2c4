"""The runs of the original. Each is made when it is first needed, and only once."""

from __future__ import annotations

from pathlib import Path

from crosstrain_verify.judging.printed_lines import Volatile, volatile
from crosstrain_verify.records.traces import RankTrace
from crosstrain_verify.report.report import Verdict
from crosstrain_verify.running.runs import Finished, Runner, Variant

SINGLE = 2.0**-23  # machine epsilon


class OriginalRuns:
    """Runs of one process of the original, as it is and under other conditions.

    done: the first run, started as its author would start it. trace: the trace of that run. failure: the error of the
    last run that failed.
    """

    def __init__(self, runner: Runner, script: Path) -> None:
        self._runner = runner
        self.script = script
        self.done: Finished = runner.original(script)
        self.trace: RankTrace = self.done.ranks[0]
        self.failure = ""
        self._known: dict[Variant, RankTrace | None] = {}

    @property
    def trains(self) -> bool:
        return self.done.run.verdict.ok

    @property
    def coarse(self) -> bool:
        """Whether it computes in less than single precision."""
        return self.trace.epsilon > SINGLE

    def again(self) -> RankTrace | None:
        """A second run, in which only the clock is another; None if it fails."""
        return self.under(Variant("original again", fast_clock=True))

    def drawing_as(self, world: int, whole: tuple[int, ...]) -> RankTrace | None:
        """A run that draws random numbers as ``world`` processes would; None if it fails.

        whole: the loaders of which each of these processes reads everything.
        """
        return self.under(Variant(f"original, drawing as {world} processes", shares=world, whole=whole))

    def under(self, variant: Variant) -> RankTrace | None:
        """A run under these conditions; None if it fails."""
        if variant not in self._known:
            done = self._runner.run(self.script, variant)
            ran = done.run.verdict is Verdict.RAN
            self._known[variant] = done.ranks[0] if ran else None
            self.failure = self.failure if ran else done.run.error.strip()
        return self._known[variant]

    def volatile(self) -> Volatile:
        """The printed numbers that differ in a second run."""
        again = self.again()
        return volatile(self.trace.lines, again.lines) if again is not None else {}
