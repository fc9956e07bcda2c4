"""What `verify` returns: one verdict per number of processes, with the first difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from crosstrain_verify.records.journal import Check, merged
from crosstrain_verify.report.curves import svg


class Verdict(str, Enum):
    """What a run turned out to be."""

    RAN = "ran"  # the original, with which nothing is compared
    IDENTICAL = "identical"  # every bit of every value
    EQUAL = "equal"  # to the tolerance of `tolerance.py`
    NOISE = "within noise"  # no further from the original than the original is from itself
    UNDECIDED = "undecided"  # it differs, and nothing tells whether it may
    AGREE = "agree"  # only asked to finish with ranks that agree, and it did
    DIFFERENT = "different"
    FAILED = "failed"  # an exception or an exit code
    HUNG = "hung"  # did not end in time
    NO_STEPS = "no steps"  # never stepped an optimizer: nothing to compare

    @property
    def ok(self) -> bool:
        return self in (Verdict.RAN, Verdict.IDENTICAL, Verdict.EQUAL, Verdict.NOISE, Verdict.AGREE)


MEANINGS = {
    Verdict.IDENTICAL: "every loss, gradient norm, learning rate, batch, weight and line is the original's, to the bit",
    Verdict.EQUAL: "the same training: what differs is rounding, because sums are made in another order",
    Verdict.NOISE: "it differs from the original no more than the original differs from itself when it draws "
    "other random numbers; a mistake smaller than that would not show",
    Verdict.AGREE: "it finished and the processes agree; it was not compared with the original",
    Verdict.DIFFERENT: "not the same training, or not the same numbers printed",
    Verdict.UNDECIDED: "it differs, and whether it may could not be decided",
    Verdict.FAILED: "the script failed",
    Verdict.HUNG: "the script did not end",
    Verdict.NO_STEPS: "no optimizer was stepped: nothing to compare",
}


@dataclass(frozen=True)
class Difference:
    """The first thing that differs.

    quantity: "loss", "gradient norm", "weight norm", "learning rate", "weights" (at the end), "printed line",
    "order" (of backward passes and steps), "batch" (what a loader gave), "files" (written by several ranks),
    "gradient" (which parameters have one), "rows" (which dimension has them) or "ranks" (they disagree among
    themselves). step: the optimizer step it belongs to, from 1; None for weights and lines. original, migrated: the two values, as text.
    """

    quantity: str
    step: int | None
    original: str
    migrated: str
    detail: str = ""

    def __str__(self) -> str:
        where = f" at step {self.step}" if self.step is not None else ""
        if self.quantity == "ranks":
            what = self.detail or "they differ"
            return f"ranks disagree{where}: {what}: {self.original}; {self.migrated}"
        if self.quantity == "gradient":
            return f"{self.detail}: a gradient {self.original} of the original, {self.migrated} of the result"
        if self.quantity == "rows":
            return (
                f"{self.detail}: the rows of what is gathered are in {self.migrated}, not in {self.original}"
            )
        if self.quantity == "files":
            return f"{self.migrated}, in the original {self.original}"
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.quantity}{where}: {self.original} became {self.migrated}{detail}"


@dataclass(frozen=True)
class Cause:
    """Why it probably differs. `rule`: a fixed name; `lines`: source lines of the migrated script."""

    rule: str
    text: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text + (f" ({'; '.join(self.lines)})" if self.lines else "")


@dataclass(frozen=True)
class Run:
    """One run of the migrated script (or, in `Report.original`, of the original).

    name: which run; launch: the command line that it stands for. against: what it was compared with, where
    that is not simply the original, and compared: the losses of that. frozen: every step was undone. by_rank: each rank
    was compared with the original's. losses: the
    global loss of every backward pass. largest: for "loss", "gradient norm" and "weights" the largest relative
    error seen (weights: relative to the way they moved). error: the traceback, or where each rank hung. seconds:
    wall time of the run. compiled: graphs that XLA compiled in each optimizer step. checks: those that the runtime
    made at lines of the script, with several processes.
    """

    processes: int
    verdict: Verdict
    steps: int = 0
    difference: Difference | None = None
    largest: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    notes: tuple[str, ...] = ()
    seconds: float = 0.0
    name: str = ""
    launch: str = ""
    against: str = ""
    frozen: bool = False
    by_rank: bool = False
    cause: Cause | None = None
    losses: tuple[float, ...] = ()
    compared: tuple[float, ...] = ()
    compiled: tuple[int, ...] = ()
    checks: tuple[Check, ...] = ()


FROZEN = (
    "run once more with both scripts' weights frozen: the processes agree in every step, learning rates follow the "
    "original's passes, and evaluations print what the original's do"
)


def meaning_of(run: Run) -> str:
    """What the verdict on a run says, in words."""
    if run.frozen and run.verdict is Verdict.AGREE:
        return FROZEN
    return MEANINGS.get(run.verdict, "")


@dataclass(frozen=True)
class Report:
    """The whole answer. `original` is how the original itself went; without steps there are no `runs`.

    notes: what holds for all runs (how the original was started, what another launch changes).
    """

    original_path: Path
    migrated_path: Path
    original: Run
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Every run is what was asked for."""
        return self.original.verdict.ok and bool(self.runs) and all(run.verdict.ok for run in self.runs)

    @property
    def checks(self) -> tuple[Check, ...]:
        """Those that the runtime made in any run."""
        return merged(run.checks for run in self.runs)

    @property
    def exit_code(self) -> int:
        """0 where `ok`, else 1."""
        return 0 if self.ok else 1

    def to_json(self) -> dict[str, Any]:
        """Plain dictionaries, lists, strings and numbers, for `json.dumps`. "figure" is an SVG document."""
        return {
            "ok": self.ok,
            "original_script": str(self.original_path),
            "migrated_script": str(self.migrated_path),
            "original": _plain(self.original),
            "runs": [_plain(run) for run in self.runs],
            "checks": [{**asdict(check), "claim": check.claim} for check in self.checks],
            "notes": list(self.notes),
            "figure": svg(self),
        }


def _plain(run: Run) -> dict[str, Any]:
    data = asdict(run)
    data["verdict"] = run.verdict.value
    data["meaning"] = meaning_of(run)
    data["notes"] = list(run.notes)
    return data
