"""The report for other programs, as `docs/reference/migrate.schema.json` describes it.

A key is never renamed or removed without a new version. A run with --verify adds `verify`: what
`crosstrain verify --output-format json` prints.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from crosstrain_migrate import __version__
from crosstrain_migrate.files.import_graph import is_script
from crosstrain_migrate.outcome import Migrated, Outcome, display_name
from crosstrain_migrate.results import Change, Finding, InputError, RoleFact

from .diff import readable

VERSION = 2
AROUND = 2  # lines of code that are shown before and after the line of a finding
LAUNCHERS = {
    "crosstrain": "crosstrain launch --num-processes",
    "accelerate": "accelerate launch --num_processes",
}
EXIT_CODES = {
    0: "done, or there was nothing to do",
    1: "a training script was refused, --check found something to change, or --verify found a difference",
    2: "an option, the configuration or a file could not be used, or --verify could not run the script",
}


def render(outcome: Outcome) -> str:
    """The whole report as one JSON document."""
    return json.dumps(document(outcome), indent=2, ensure_ascii=False) + "\n"


def document(outcome: Outcome) -> dict[str, Any]:
    """The report as plain dictionaries and lists."""
    return {
        "schema": "crosstrain-migrate",
        "version": VERSION,
        "tool": f"crosstrain {__version__}",
        "runtime": outcome.runtime,
        "mode": outcome.mode.value,
        "exit": {"code": outcome.code, "meaning": EXIT_CODES[outcome.code]},
        "summary": {
            "changed": len(outcome.changed),
            "assumptions": outcome.assumptions,
            "refused": len(outcome.refused),
            "untouched": outcome.untouched,
            "errors": len(outcome.errors),
        },
        "files": [_file(file, outcome.runtime) for file in outcome.files],
        "errors": [_error(error) for error in outcome.errors],
        **({"verify": outcome.proof} if outcome.proof is not None else {}),
    }


def _file(file: Migrated, runtime: str) -> dict[str, Any]:
    result = file.result
    return {
        "path": file.name,
        "outcome": result.outcome.value,
        "changed": result.changed,
        "refused": result.refused,
        "trains": result.trains,
        "changes": [_placed(file, change) for change in result.changes],
        "findings": [_finding(file, one) for one in result.findings if one not in result.assumptions],
        "assumptions": [_assumption(file, one) for one in result.assumptions],
        "roles": [_placed(file, role) for role in result.roles],
        "facts": dict(result.extras),
        "launch": _launch(file, runtime),
        "diff": readable(file) if result.changed else "",
    }


def _finding(file: Migrated, finding: Finding) -> dict[str, Any]:
    found = _placed(file, finding)
    del found["kind"], found["status"]  # of assumptions only
    lines = file.result.before.split("\n")
    first = max(finding.line - AROUND, 1)
    code = "\n".join(lines[first - 1 : finding.line + AROUND])
    return {**found, "around": {"line": file.source.cell_line(first)[1], "code": code}}


def _launch(file: Migrated, runtime: str) -> str:
    """How to start a converted script on two processes; "" for a module, a notebook, or what is not converted."""
    result = file.result
    if (
        result.refused
        or not result.changed
        or file.source.is_cells
        or not is_script(result.after.encode(errors="surrogatepass"))
    ):
        return ""
    return f"{LAUNCHERS[runtime]} 2 {file.launched}"


def _assumption(file: Migrated, finding: Finding) -> dict[str, Any]:
    placed = _placed(file, finding)
    about = {
        "kind": finding.kind,
        "claim": finding.reason,
        "check": finding.remedy,
        "status": finding.status or None,
    }
    return {**about, **{key: placed[key] for key in ("rule", "line", "column", "cell") if key in placed}}


def _placed(file: Migrated, said: Change | Finding | RoleFact) -> dict[str, Any]:
    cell, line = file.source.cell_line(said.line)
    return {**asdict(said), "line": line, **({} if cell is None else {"cell": cell})}


def _error(error: InputError) -> dict[str, Any]:
    return {**asdict(error), "path": display_name(error.path)}
