"""Runs: of a varied script beside the script that it was made from, and of its conversion beside itself."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from crosstrain_verify import verify
from crosstrain_verify.report.report import Report, Run, Verdict

from tests.corpora.variations.bases import Base
from tests.corpora.variations.script import Project

TIMEOUT = 120.0
ENOUGH = {  # what is as good as the word in run.toml
    "identical": ("identical",),
    "equal": ("identical", "equal", "within noise"),
    "within noise": ("identical", "equal", "within noise"),
    "agree": ("identical", "equal", "within noise", "agree"),
    "different": ("identical", "equal", "within noise", "different"),
}


@dataclass(frozen=True)
class Outcome:
    """What a conversion does on one process and on two: the verdicts of `verify`, and the first thing that is wrong."""

    original: str
    one: str
    two: str
    ok: bool
    said: str = ""


def compared(base: Base, before: Project, after: dict[str, str]) -> Outcome:
    """A conversion beside the script that it was made from, as the golden tests do it."""
    with tempfile.TemporaryDirectory() as place:
        folder, overlay = Path(place) / "before", Path(place) / "after"
        _write(folder, dict(before.files))
        _write(overlay, after)
        script = folder / before.entry
        expect = "agree" if base.verdict == "agree" else "equal"
        report = verify(
            script,
            script,
            args=base.args,
            processes=(1, 2),
            expect=expect,
            timeout=TIMEOUT,
            folder=folder,
            overlay=overlay,
            rank_by_rank=base.distributed,
        )
    return _outcome(base, report)


def _outcome(base: Base, report: Report) -> Outcome:
    if report.original.verdict is not Verdict.RAN:
        return Outcome(report.original.verdict.value, "", "", False, _said(report.original))
    words = [run.verdict.value for run in report.runs[:2]]
    wanted = (("identical",), ENOUGH[base.verdict])
    good = len(words) == 2 and all(word in enough for word, enough in zip(words, wanted, strict=True))
    good = good and (words[1] != "different" or _differs_in_print_only(report.runs[1]))
    later = [run for run in report.runs[2:] if not run.verdict.ok]
    wrong = [run for run, enough in zip(report.runs, wanted, strict=False) if run.verdict.value not in enough]
    said = "; ".join(_said(run) for run in [*wrong, *later][:1])
    return Outcome("ran", *[*words, "", ""][:2], good and not later, said)


def _differs_in_print_only(run: Run) -> bool:
    """Whether the training is the same and a printed number of it is not, as the golden tests allow it."""
    return "printed line" in str(run.difference) and run.largest["loss"] < 1e-5


def _said(run: Run) -> str:
    if run.difference is not None:
        return f"{run.name}: {run.difference}"
    last = (run.error.strip().splitlines() or [run.verdict.value])[-1]
    return f"{run.name}: {last}"


def _write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
