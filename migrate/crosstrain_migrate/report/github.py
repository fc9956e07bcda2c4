"""GitHub Actions: annotations on standard output, and the Markdown report in the step's summary."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.outcome import Outcome, display_name, located, sentences
from crosstrain_migrate.results import Severity

_COMMANDS = {
    Severity.REFUSED: "error",
    Severity.ASSUMED: "warning",
    Severity.OBSERVED: "notice",
    Severity.NOTE: "notice",
}
_SUMMARY_LIMIT = 900_000  # bytes; GitHub drops a summary over 1 MiB


def render(outcome: Outcome) -> str:
    """Workflow commands, one a line: the log is folded into a group for each file. GitHub shows ten annotations of a kind, so
    those that need a person come first, and a file's changes are one."""
    return "".join(f"{command}\n" for command in _commands(outcome))


def append_summary(outcome: Outcome) -> None:
    """Appends the Markdown report to `$GITHUB_STEP_SUMMARY`; nothing outside GitHub Actions.

    Raises OSError, which names the file.
    """
    if not (file := os.environ.get("GITHUB_STEP_SUMMARY")):
        return
    from .markdown import render as markdown

    text = markdown(outcome, limit=_SUMMARY_LIMIT)
    try:
        with Path(file).open("a", encoding="utf-8", errors="backslashreplace") as summary:
            summary.write(text)
    except OSError as error:  # a full disk is not said of a file
        raise OSError(error.errno, error.strerror, file) from None


def _commands(outcome: Outcome) -> Iterator[str]:
    for error in outcome.errors:
        place = (display_name(error.path), error.line, error.column)
        yield _command("error", *place, "migrate", sentences(error))
    for file in outcome.by_urgency:
        would_change = file.result.changed and outcome.mode is not Mode.WRITE
        if not file.result.findings and not would_change:
            continue
        yield f"::group::{_data(file.name)}"
        for finding in file.result.by_urgency:
            kind = _COMMANDS[finding.severity]
            line, column, told = located(file, finding)
            yield _command(kind, file.name, line, column, finding.rule, told)
        if would_change:
            line = file.source.file_line(file.first_change)
            told = f"This file would be changed ({file.rules})."
            yield _command("warning", file.name, line, None, "migrate", told)
        yield "::endgroup::"


def _command(kind: str, name: str, line: int | None, column: int | None, title: str, message: str) -> str:
    places = {"file": name, "line": line, "col": column, "title": title}
    shown = ((key, _data(str(value))) for key, value in places.items() if value is not None)
    properties = ",".join(f"{key}={value.replace(':', '%3A').replace(',', '%2C')}" for key, value in shown)
    return f"::{kind} {properties}::{_data(message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
