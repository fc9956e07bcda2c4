"""What `verify` returns: a verdict for each run, with the first difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from crosstrain_verify.records.journal import Check, merged
from crosstrain_verify.report.curves import STYLES, Curve, svg


class Verdict(str, Enum):
    """The result of a run, or of its comparison with the original."""

    RAN = "ran"  # the run trained, and is not compared
    IDENTICAL = "identical"  # bit for bit
    EQUAL = "equal"  # within the tolerance of `tolerance.py`
    NOISE = "within noise"  # no further from the original than the original's own runs are from each other
    UNDECIDED = "undecided"  # it differs, and whether it may cannot be told
    AGREE = "agree"  # it finished and its ranks agree, which was all that was asked
    DIFFERENT = "different"
    FAILED = "failed"  # an exception or an exit code
    HUNG = "hung"  # it did not end in time
    NO_STEPS = "no steps"  # it never stepped an optimizer, so there is nothing to compare

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
    """The first difference between two runs.

    Args:
        quantity: "loss", "gradient norm", "weight norm", "learning rate", "weights" (at the end), "printed line",
            "evaluation" (a printed line about one), "order" (of backward passes and steps), "batch" (what a loader gave),
            "files" (written by several ranks), "gradient" (which parameters have one) or "ranks" (they disagree with each other).
        step: the optimizer step, from 1; None for weights, lines and files.
        original, migrated: the two values, as text.
        detail: where or how much they differ.
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
        if self.quantity == "files":
            return f"{self.migrated}, in the original {self.original}"
        detail = f" ({self.detail})" if self.detail else ""
        return f"{self.quantity}{where}: {self.original} became {self.migrated}{detail}"


@dataclass(frozen=True)
class Cause:
    """The likely cause of a difference. rule: a fixed name. lines: source lines of the migrated script."""

    rule: str
    text: str
    lines: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text + (f" ({'; '.join(self.lines)})" if self.lines else "")


@dataclass(frozen=True)
class Run:
    """One run of the migrated script or, in `Report.original`, of the original.

    Args:
        steps: optimizer steps that were made.
        difference: the first one; None if there is none.
        largest: the largest relative error by quantity ("loss", "gradient norm", "weights"); that of weights is relative
            to the distance they moved.
        error: the traceback, or where each rank hung.
        seconds: wall time.
        name: the name that the report shows.
        launch: the command line that the run stands for.
        against: what the run was compared with, if that is not simply the original.
        frozen: every optimizer step was undone.
        by_rank: each rank was compared with the original's.
        losses: the global loss of every backward pass.
        compared: the losses of the run that `against` names.
        compiled: graphs that XLA compiled in each optimizer step.
        checks: the checks that the runtime made at lines of the script, with several processes.
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


VERSION = 1
EXIT_CODES = {
    0: "every run has a good verdict",
    1: "a run is different, failed, hung or undecided, or the original does not train",
}
FROZEN = (
    "run once more with both scripts' weights frozen: the processes agree in every step, learning rates follow the "
    "original's passes, and evaluations print what the original's do"
)


def meaning_of(run: Run) -> str:
    """The verdict on a run, in words; "" for one that is only a run."""
    if run.frozen and run.verdict is Verdict.AGREE:
        return FROZEN
    return MEANINGS.get(run.verdict, "")


@dataclass(frozen=True)
class Report:
    """The result of `verify`.

    original: the original's own run. runs: those of the migrated script; empty if the original does not train. notes: what
    concerns all runs, such as how the original was started.
    """

    original_path: Path
    migrated_path: Path
    original: Run
    runs: tuple[Run, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every run has the verdict that was asked for."""
        return self.original.verdict.ok and bool(self.runs) and all(run.verdict.ok for run in self.runs)

    @property
    def checks(self) -> tuple[Check, ...]:
        """The checks that the runtime made in any run."""
        return merged(run.checks for run in self.runs)

    @property
    def curves(self) -> list[Curve]:
        """The original's loss curve and that of every run, each after the one it is compared with.

        Frozen runs have no curve: they belong to the default launch, which makes other steps.
        """
        found = [Curve("original", self.original.losses, None, True)]
        for number, run in enumerate(run for run in self.runs if run.losses and not run.frozen):
            style = number % len(STYLES)
            if run.compared:
                how = f"{run.processes} processes" if run.by_rank else f"drawing as {run.processes}"
                found.append(Curve(f"original, {how}", run.compared, style, True))
            found.append(Curve(run.name, run.losses, style, False))
        return [curve for curve in found if curve.losses]

    @property
    def exit_code(self) -> int:
        """0 if `ok`, else 1."""
        return 0 if self.ok else 1

    def to_json(self) -> dict[str, Any]:
        """The report as dictionaries, lists, strings and numbers, as `docs/reference/verify.schema.json` describes it.

        A key is never renamed or removed without a new version. "figure" is an SVG document.
        """
        return {
            "schema": "crosstrain-verify",
            "version": VERSION,
            "exit": {"code": self.exit_code, "meaning": EXIT_CODES[self.exit_code]},
            "ok": self.ok,
            "original_script": str(self.original_path),
            "migrated_script": str(self.migrated_path),
            "original": _plain(self.original),
            "runs": [_plain(run) for run in self.runs],
            "checks": [{**asdict(check), "claim": check.claim} for check in self.checks],
            "notes": list(self.notes),
            "figure": svg(self.curves),
        }


def _plain(run: Run) -> dict[str, Any]:
    data = asdict(run)
    data["verdict"] = run.verdict.value
    data["meaning"] = meaning_of(run)
    data["notes"] = list(run.notes)
    return data
