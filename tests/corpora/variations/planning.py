"""What the tool makes of a project, planned in this process and without the command line."""

from __future__ import annotations

import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options, Severity

from tests.corpora.everything import too_long
from tests.corpora.variations.script import Project

SECONDS = 120.0  # of this process's time


@dataclass(frozen=True)
class Planned:
    """How a migration ended: converted, untouched, refused, failed or crashed.

    after: every file of the project, as the tool wrote it. rules: what refused, or made a note. about: the first reason.
    """

    outcome: str
    after: dict[str, str] = field(default_factory=dict, repr=False)
    rules: tuple[str, ...] = ()
    about: str = ""

    @property
    def converted(self) -> bool:
        return self.outcome == "converted"


def planned(project: Project) -> Planned:
    """Migrate the entry of a project."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place).resolve()
        project.write(folder)
        signal.signal(signal.SIGPROF, too_long)
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            request = Request((folder / project.entry,), Options(), Mode.WRITE, cache=False)
            outcome = run(request, migrate_text)
        except Exception as error:  # a crash is one of the results
            return Planned("crashed", about=f"{type(error).__name__}: {error}")
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if outcome.errors:
            return Planned("failed", about=outcome.errors[0].reason)
        findings = [one for file in outcome.files for one in file.result.findings]
        refusals = [one for one in findings if one.severity is Severity.REFUSED]
        if refusals:
            rules = tuple(sorted({one.rule for one in refusals}))
            return Planned("refused", rules=rules, about=f"{refusals[0].rule} {refusals[0].reason}")
        after = {name: (folder / name).read_text(encoding="utf-8") for name in project.files}
        changed = any(file.result.changed for file in outcome.files)
        rules = tuple(sorted({one.rule for one in findings}))
        return Planned("converted" if changed else "untouched", after, rules)
