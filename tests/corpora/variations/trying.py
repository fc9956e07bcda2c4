"""What the tool makes of a project, planned without the command line; and what the result trains, as the golden tests do it."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options, Severity
from crosstrain_verify import verify
from crosstrain_verify.report.report import Run, Verdict

from tests.corpora.everything import limited
from tests.corpora.variations.script import Project
from tests.golden.cases import Case

SECONDS = 120.0
WORSE = {"identical": 0, "equal": 1, "within noise": 1, "agree": 2, "different": 3}


@dataclass(frozen=True)
class Planned:
    """How a migration ended: converted, untouched, refused, failed or crashed.

    about: the first reason. rules: what refused, or made a note. after: every file of the project, as the tool wrote it.
    """

    outcome: str
    about: str = ""
    rules: tuple[str, ...] = ()
    after: dict[str, str] = field(default_factory=dict, repr=False)

    @property
    def converted(self) -> bool:
        return self.outcome == "converted"


def planned(project: Project) -> Planned:
    """Migrate the entry of a project."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        project.write(folder)
        request = Request((folder / project.entry,), Options(), Mode.WRITE, cache=False)
        try:
            with limited(SECONDS):
                outcome = run(request, migrate_text)
        except Exception as error:  # a crash is one of the results
            return Planned("crashed", f"{type(error).__name__}: {error}")
        after = {name: (folder / name).read_text(encoding="utf-8") for name in project.files}
    if outcome.errors:
        return Planned("failed", outcome.errors[0].reason)
    findings = [one for file in outcome.files for one in file.result.findings]
    refusals = [one for one in findings if one.severity is Severity.REFUSED]
    rules = tuple(sorted({one.rule for one in refusals or findings}))
    if refusals:
        return Planned("refused", f"{refusals[0].rule} {refusals[0].reason}", rules)
    changed = any(file.result.changed for file in outcome.files)
    return Planned("converted" if changed else "untouched", "", rules, after)


def compared(base: Case, before: Project, after: dict[str, str]) -> tuple[str, str]:
    """A conversion on one process and on two beside the script: the words of `verify`, and the first thing that is wrong."""
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
            timeout=SECONDS,
            folder=folder,
            overlay=overlay,
            rank_by_rank=base.distributed,
        )
    if report.original.verdict is not Verdict.RAN:
        return "original", _said(report.original)
    runs = report.runs
    allowed = zip(runs, ("identical", base.two_processes), strict=False)
    wrong = [run for run, word in allowed if WORSE.get(run.verdict.value, 9) > WORSE[word]]
    wrong += [run for run in runs[1:2] if run.verdict is Verdict.DIFFERENT and not _only_printed(run)]
    wrong += [run for run in runs[2:] if not run.verdict.ok]
    said = _said(wrong[0]) if wrong else "" if len(runs) > 1 else "it was not run on two processes"
    return ", ".join(run.verdict.value for run in runs[:2]), said


def _only_printed(run: Run) -> bool:
    """Whether the training is the same and a printed number of it is not, as the golden tests allow it."""
    return "printed line" in str(run.difference) and run.largest["loss"] < 1e-5


def _said(run: Run) -> str:
    return f"{run.name}: {run.difference or (run.error.strip().splitlines() or [run.verdict.value])[-1]}"
