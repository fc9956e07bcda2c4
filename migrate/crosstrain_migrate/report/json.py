"""The report for other programs. Version 2; a key is never renamed or removed without a new version.

    {"schema": "crosstrain-migrate", "version": 2,
     "tool": "crosstrain 0.1.0",
     "runtime": "crosstrain" | "accelerate",
     "mode": "preview" | "check" | "write",
     "summary": {"changed": int, "assumptions": int, "refused": int, "untouched": int, "errors": int},
     "files": [{"path": str,          relative to the working directory where it lies below it
                "outcome": "converted" | "converted with assumptions" | "refused" | "unchanged",
                "changed": bool, "refused": bool,
                "trains": bool,       it holds a training loop
                "changes":  [{"rule": str, "line": int, "reason": str, "confidence": str}],
                "findings": [{"rule": str, "line": int, "column": int, "reason": str, "remedy": str,
                              "severity": "refused" | "note"}],
                "assumptions": [{"kind": str, "rule": str, "line": int, "column": int, "claim": str, "check": str,
                                 "status": null | "proven" | "not reached" | "failed"}],  by --verify
                "roles":    [{"name": str, "role": str, "line": int, "evidence": str}],
                "facts": {str: str},  what else the migration found out
                "diff": str}],        unified, cell by cell for a notebook; empty when not changed
     "errors": [{"path": str, "line": int | null, "column": int | null, "reason": str, "remedy": str}]}

A run with --verify adds `verify`: what `crosstrain verify --output-format json` prints, verdicts and figure.
Lines and columns are 1-based and speak of the text before; columns count characters. In a notebook changes, findings,
assumptions and roles have a "cell", too, counted from 1 over all cells, and lines count in it. `files` holds every file with
changes, findings or training code.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from crosstrain_migrate import __version__
from crosstrain_migrate.outcome import Migrated, Outcome, display_name
from crosstrain_migrate.results import Change, Finding, InputError, RoleFact

from .diff import readable

VERSION = 2


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
        "summary": {
            "changed": len(outcome.changed),
            "assumptions": outcome.assumptions,
            "refused": len(outcome.refused),
            "untouched": outcome.untouched,
            "errors": len(outcome.errors),
        },
        "files": [_file(file) for file in outcome.files],
        "errors": [_error(error) for error in outcome.errors],
        **({"verify": outcome.proof} if outcome.proof is not None else {}),
    }


def _file(file: Migrated) -> dict[str, Any]:
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
        "diff": readable(file) if result.changed else "",
    }


def _finding(file: Migrated, finding: Finding) -> dict[str, Any]:
    found = _placed(file, finding)
    del found["kind"], found["status"]  # of assumptions only
    return found


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
