"""SARIF 2.1.0, for code scanning: one result per finding.

Refused is an error, assumed a warning, a note a note. What would be changed is in the diff and no result: nobody has to
look at it. A fingerprint is made of what stays when lines move: the rule, the file and the finding's own text. The property
`assumption` of a result has its kind, its claim and how it is checked; the run's property `assumptions` counts them.
Files that could not be used are notifications of the run, which then counts as not successful.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path
from typing import Any
from urllib.parse import quote

from crosstrain_migrate import __version__
from crosstrain_migrate.outcome import Migrated, Outcome, display_name, located, sentences
from crosstrain_migrate.results import Finding, InputError, Severity
from crosstrain_migrate.rules.catalogue import Page, catalogue

from .rule_pages import markdown_page, rule_page

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_FINGERPRINT = "crosstrain/v1"
_LEVELS = {
    Severity.REFUSED: "error",
    Severity.ASSUMED: "warning",
    Severity.OBSERVED: "note",
    Severity.NOTE: "note",
}


def render(outcome: Outcome) -> str:
    """The whole report as one SARIF log with one run."""
    results = [_finding(file, finding) for file in outcome.files for finding in file.result.findings]
    codes = sorted({result["ruleId"] for result in results})
    found: Counter[str] = Counter()
    for result in results:
        result["ruleIndex"] = codes.index(result["ruleId"])
        text = result["partialFingerprints"][_FINGERPRINT]
        result["partialFingerprints"][_FINGERPRINT] = f"{text}:{found[text]}"  # the same twice in a file
        found[text] += 1
    pages = {page.code: page for page in catalogue()}
    run = {
        "tool": {
            "driver": {
                "name": "crosstrain migrate",
                "version": __version__,
                "semanticVersion": __version__,
                "rules": [_rule(pages[code]) for code in codes],
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
        "partialFingerprints": {_FINGERPRINT: _fingerprint(file.name, finding)},
    }
    if finding.severity is Severity.ASSUMED:
        about = {"kind": finding.kind, "claim": finding.reason, "check": finding.remedy}
        result["properties"] = {"assumption": about | ({"status": finding.status} if finding.status else {})}
    return result


def _rule(page: Page) -> dict[str, Any]:
    rule: dict[str, Any] = {
        "id": page.code,
        "shortDescription": {"text": page.title},
        "help": {"text": rule_page(page.code) or page.title, "markdown": markdown_page(page)},
    }
    if site := _documentation():
        rule["helpUri"] = f"{site}/rules/{page.code.lower()}.html"
    return rule


def _documentation() -> str:
    """Where the documentation is published, as the distribution says; empty where it is not."""
    try:
        addresses = metadata("crosstrain").get_all("Project-URL") or []
    except PackageNotFoundError:
        return ""
    found = (one.split(", ", 1)[1] for one in addresses if one.startswith("Documentation, "))
    return next(found, "").rstrip("/")


def _fingerprint(name: str, finding: Finding) -> str:
    said = re.sub(r"\blines? \d+", "line", finding.reason)
    return hashlib.sha256(f"{finding.rule}\0{name}\0{said}".encode(errors="surrogateescape")).hexdigest()[:32]


def _notification(error: InputError) -> dict[str, Any]:
    return {
        "level": "error",
        "message": {"text": sentences(error)},
        "locations": [_location(display_name(error.path), error.line, error.column)],
    }


def _location(name: str, line: int | None, column: int | None) -> dict[str, Any]:
    if Path(name).is_absolute():
        artifact = {"uri": Path(name).as_uri()}
    else:
        artifact = {"uri": quote(name.encode(errors="surrogateescape")), "uriBaseId": "%SRCROOT%"}
    place: dict[str, Any] = {"artifactLocation": artifact}
    if line is not None:
        place["region"] = {"startLine": max(line, 1)} | ({"startColumn": max(column, 1)} if column else {})
    return {"physicalLocation": place}
