"""The plain report: the diff for `git apply`, and findings as `path:line:col: CODE severity: reason  -> remedy`,
what needs a person first."""

from __future__ import annotations

from collections.abc import Iterator

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.outcome import Outcome
from crosstrain_migrate.reports.diff import patch


def render(outcome: Outcome) -> bytes:
    """One patch for all scripts, to be applied with -p1 in the working directory; notebooks cell by cell."""
    return b"".join(patch(file) for file in outcome.changed)


def messages(outcome: Outcome) -> Iterator[str]:
    """Everything but the diff: changed names and findings file by file, errors, the summary."""
    for file in outcome.files:
        if file.result.changed and outcome.mode is not Mode.PREVIEW:
            verb = "changed" if outcome.mode is Mode.WRITE else "would change"
            rules = ", ".join(sorted({change.rule for change in file.result.changes}))
            yield f"{verb} {file.name}" + (f" ({rules})" if rules else "")
        for finding in file.result.by_urgency:
            place = f"{file.name}:{file.source.place(finding.line, finding.column)}"
            status = f", {finding.status}" if finding.status else ""
            said = f"{finding.severity.value}{status}: {finding.reason}  -> {finding.remedy}"
            yield f"{place}: {finding.rule} {said}"
    yield from (f"error: {error}" for error in outcome.errors)
    yield outcome.summary()


def statuses(outcome: Outcome) -> Iterator[str]:
    """After --verify, which assumptions it proved, and the summary."""
    for file in outcome.files:
        for finding in file.result.assumptions:
            place = f"{file.name}:{file.source.place(finding.line, finding.column)}"
            yield f"{place}: {finding.rule} {finding.status}: {finding.reason}"
    yield outcome.summary()
