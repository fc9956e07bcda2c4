"""Runs: of a varied script's conversion beside the script that it was made from, as the golden tests do it."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from crosstrain_verify import verify
from crosstrain_verify.report.report import Run, Verdict

from tests.corpora.variations.script import Project
from tests.golden.cases import Case

TIMEOUT = 120.0
EQUAL = ("identical", "equal", "within noise")
ENOUGH = {  # what is as good as the word in run.toml
    "identical": ("identical",),
    "equal": EQUAL,
    "within noise": EQUAL,
    "agree": (*EQUAL, "agree"),
    "different": (*EQUAL, "different"),
}


@dataclass(frozen=True)
class Outcome:
    """What a conversion does on one process and on two, in the words of `verify`, and the first thing that is wrong."""

    words: str
    ok: bool
    said: str = ""


def compared(base: Case, before: Project, after: dict[str, str]) -> Outcome:
    with tempfile.TemporaryDirectory() as place:
        folder, overlay = Path(place) / "before", Path(place) / "after"
        before.write(folder)
        Project(before.entry, after).write(overlay)
        script = folder / before.entry
        report = verify(
            script,
            script,
            args=base.args,
            processes=(1, 2),
            expect="agree" if base.two_processes == "agree" else "equal",
            timeout=TIMEOUT,
            folder=folder,
            overlay=overlay,
            rank_by_rank=base.distributed,
        )
    if report.original.verdict is not Verdict.RAN:
        return Outcome(f"original {report.original.verdict.value}", False, _said(report.original))
    wanted = (("identical",), ENOUGH[base.two_processes])
    wrong = [run for run, enough in zip(report.runs, wanted, strict=False) if run.verdict.value not in enough]
    if len(report.runs) > 1 and report.runs[1].verdict is Verdict.DIFFERENT:
        wrong += [run for run in report.runs[1:2] if not _differs_in_print_only(run)]
    wrong += [run for run in report.runs[2:] if not run.verdict.ok]
    words = ", ".join(run.verdict.value for run in report.runs[:2])
    return Outcome(words, len(report.runs) > 1 and not wrong, "; ".join(map(_said, wrong[:1])))


def _differs_in_print_only(run: Run) -> bool:
    """Whether the training is the same and a printed number of it is not, as the golden tests allow it."""
    return "printed line" in str(run.difference) and run.largest["loss"] < 1e-5


def _said(run: Run) -> str:
    if run.difference is not None:
        return f"{run.name}: {run.difference}"
    last = (run.error.strip().splitlines() or [run.verdict.value])[-1]
    return f"{run.name}: {last}"
