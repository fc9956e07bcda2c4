"""`migrate --verify`: trains the script before and after the migration and compares the two.

The engine is the runtime's (`crosstrain verify`) and runs in a process of its own: this package never imports
torch. The migrated files are handed over in a folder that is laid over each run's copy of the project;
nothing in the project itself is written or run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crosstrain_migrate.files.notebooks.linked import Cells
from crosstrain_migrate.files.sources import unusable
from crosstrain_migrate.outcome import Migrated, Outcome
from crosstrain_migrate.results import Finding, Severity
from crosstrain_migrate.syntax.lines import Lines

NOT_EQUAL, UNUSABLE = 1, 2
PROVEN, NOT_REACHED, FAILED = "proven", "not reached", "failed"
CELL = ":cell "  # in a place in a notebook, as the engine names it


@dataclass(frozen=True, slots=True)
class Settings:
    """What `--verify-...` says, some of it of `--observe` too. `arguments` are the script's own."""

    steps: int
    processes: str
    timeout: float  # seconds
    data: str
    backend: str
    arguments: tuple[str, ...]


def prove(outcome: Outcome, script: Path, settings: Settings, *, quiet: bool) -> tuple[int, Outcome]:
    """Verifies the migration of `script`, which must be among `outcome.files`.

    Returns the engine's exit code (0 the same, 1 not the same, 2 could not be run), and the outcome with the engine's
    report and the status of every assumption. quiet: the engine prints nothing on standard output. Raises Unusable where
    there is nothing to compare.
    """
    chosen = _migrated(outcome, script)
    path = chosen.source.target.resolve()
    folder = folder_of(path)
    with tempfile.TemporaryDirectory(prefix="crosstrain-migrated-") as place:
        overlay = Path(place).resolve() / "overlay"
        overlay.mkdir()
        _lay_out(outcome, folder, overlay)
        answer = Path(place) / "report.json"
        command = _command(path, folder, overlay, answer, settings)
        # `-m` puts the working directory first on the path: not the user's project, whose modules may be named like ours.
        done = subprocess.run(command, stdout=subprocess.DEVNULL if quiet else None, check=False, cwd=place)
        report = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else None
    if report is None:
        return UNUSABLE, outcome
    checks = _in_the_text(report.get("checks", ()), chosen, folder)
    outcome = replace(judged(outcome, folder, checks), proof=report)
    return done.returncode if done.returncode in (0, NOT_EQUAL) else UNUSABLE, outcome


def folder_of(path: Path) -> Path:
    """The project: the working directory, or the script's own folder where that lies elsewhere."""
    folder = Path.cwd().resolve()
    return folder if path.is_relative_to(folder) else path.parent


def judged(outcome: Outcome, folder: Path, checks: Sequence[Mapping[str, Any]]) -> Outcome:
    """The outcome with the status of every assumption.

    checks: what the runtime checked in the runs of several processes, as the report has it: kind, file (below
    `folder`), line (of the text after) and status.
    """

    def verified(file: Migrated) -> Migrated:
        line_of = Lines(file.result.before, file.result.after)
        name = _name(file, folder)
        own = {(check["kind"], line_of(check["line"])): check for check in checks if check["file"] == name}
        findings = tuple(
            replace(one, status=_status(one, own)) if one.severity is Severity.ASSUMED else one
            for one in file.result.findings
        )
        return replace(file, result=replace(file.result, findings=findings))

    return replace(outcome, files=tuple(map(verified, outcome.files)))


def _in_the_text(
    checks: Sequence[Mapping[str, Any]], chosen: Migrated, folder: Path
) -> Sequence[Mapping[str, Any]]:
    """The checks with lines of a notebook's whole text, where the report names cells and their lines."""
    if not chosen.source.is_cells:
        return checks
    name, cells = _name(chosen, folder), Cells(chosen.result.after)

    def moved(check: Mapping[str, Any]) -> Mapping[str, Any]:
        file, _, number = check["file"].rpartition(CELL)
        if file != name or not number.isdecimal():
            return check
        return {**check, "file": name, "line": cells.first(int(number)) + check["line"] - 1}

    return [moved(check) for check in checks]


def _name(file: Migrated, folder: Path) -> str:
    path = file.source.target.resolve()
    return str(path.relative_to(folder) if path.is_relative_to(folder) else path)


def _status(assumed: Finding, checks: Mapping[tuple[str, int], Mapping[str, Any]]) -> str:
    """What the check of an assumption came to. checks: by kind, and by their line in the text before."""
    check = checks.get((assumed.kind, assumed.line), {"status": ""})
    return {"held": PROVEN, "failed": FAILED}.get(check["status"], NOT_REACHED)


def _migrated(outcome: Outcome, script: Path) -> Migrated:
    for file in outcome.files:
        if file.source.path.resolve() == script.resolve():
            if file.result.refused:
                raise unusable(script, "was not converted", "Resolve its findings first")
            if not file.result.changed:
                break
            return file
    raise unusable(script, "is not changed, so there is nothing to verify", "Name a script that trains")


def _lay_out(outcome: Outcome, folder: Path, overlay: Path) -> None:
    """Every changed file at its place below `overlay`; what is outside of the project is left out."""
    for file in outcome.changed:
        path = file.source.target.resolve()
        if path.is_relative_to(folder):
            target = overlay / path.relative_to(folder)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.after)


def _command(path: Path, folder: Path, overlay: Path, answer: Path, settings: Settings) -> list[str]:
    return [
        *(sys.executable, "-m", "crosstrain_verify", str(path), str(path)),
        *("--folder", str(folder), "--overlay", str(overlay), "--output", str(answer)),
        *("--steps", str(settings.steps), "--processes", settings.processes),
        *("--timeout", str(settings.timeout), "--data", settings.data),
        *("--backend", settings.backend),
        *("--", *settings.arguments),
    ]
