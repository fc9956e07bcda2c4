"""SARIF 2.1.0, for code scanning: one result per finding and per change.

Refused is an error, assumed and "please review" a warning, everything else (changes among it) a note. The property
`assumption` of a result has its kind, its claim and how it is checked; the run's property `assumptions` counts them.
Files that could not be used are notifications of the run, which then counts as not successful.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crosstrain_migrate import __version__
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.outcome import Migrated, Outcome, display_name, located, sentences
from crosstrain_migrate.pages import rule_names
from crosstrain_migrate.results import Change, Confidence, Finding, InputError, Severity

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.REFUSED: "error", Severity.ASSUMED: "warning", Severity.NOTE: "note"}


def render(outcome: Outcome) -> str:
    """The whole report as one SARIF log with one run."""
    results = [
        result
        for file in outcome.files
        for result in (
            *(_change(file, change, outcome.mode) for change in file.result.changes),
            *(_finding(file, finding) for finding in file.result.findings),
        )
    ]
    codes = sorted({result["ruleId"] for result in results})
    names = rule_names()
    for result in results:
        result["ruleIndex"] = codes.index(result["ruleId"])
    run = {
        "tool": {
            "driver": {
                "name": "crosstrain migrate",
                "version": __version__,
                "rules": [
                    {"id": code, "shortDescription": {"text": names.get(code, code)}} for code in codes
                ],
            }
        },
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": not outcome.errors,
                "toolExecutionNotifications": [_notification(error) for error in outcome.errors],
            }
        ],
        "results": results,
        "properties": {"assumptions": outcome.assumptions},
    }
    return json.dumps({"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _finding(file: Migrated, finding: Finding) -> dict[str, Any]:
    line, column, told = located(file, finding)
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": _LEVELS[finding.severity],
        "message": {"text": told},
        "locations": [_location(file.name, line, column)],
    }
    if finding.severity is Severity.ASSUMED:
        about = {"kind": finding.kind, "claim": finding.reason, "check": finding.remedy}
        result["properties"] = {"assumption": about | ({"status": finding.status} if finding.status else {})}
    return result


def _change(file: Migrated, change: Change, mode: Mode) -> dict[str, Any]:
    done = "Changed" if mode is Mode.WRITE else "Would be changed"
    if file.source.is_cells:
        done = f"{file.source.spoken(change.line)}: {done.lower()}"
    return {
        "ruleId": change.rule,
        "level": "warning" if change.confidence is Confidence.REVIEW else "note",
        "message": {"text": f"{done}: {change.reason}"},
        "locations": [_location(file.name, file.source.file_line(change.line), None)],
    }


def _notification(error: InputError) -> dict[str, Any]:
    return {
        "level": "error",
        "message": {"text": sentences(error)},
        "locations": [_location(display_name(error.path), error.line, error.column)],
    }


def _location(name: str, line: int | None, column: int | None) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": _artifact(name)}
    if line is not None:
        place["region"] = {"startLine": max(line, 1)} | ({"startColumn": max(column, 1)} if column else {})
    return {"physicalLocation": place}


def _artifact(name: str) -> dict[str, str]:
    if Path(name).is_absolute():
        return {"uri": Path(name).as_uri()}
    return {"uri": quote(name.encode(errors="surrogateescape")), "uriBaseId": "%SRCROOT%"}
