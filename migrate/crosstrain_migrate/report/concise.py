"""One line for each finding, in the format of compilers, which editors and `grep` understand."""

from __future__ import annotations

from collections.abc import Iterator

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.outcome import Outcome, display_name


def render(outcome: Outcome) -> str:
    """`path:line:column: CODE severity: reason  -> remedy`, what needs a person first in each file."""
    return "".join(f"{' '.join(line.split(chr(10)))}\n" for line in _lines(outcome))


def _lines(outcome: Outcome) -> Iterator[str]:
    for error in outcome.errors:
        places = (display_name(error.path), error.line, error.column)
        where = ":".join(str(place) for place in places if place is not None)
        yield f"{where}: error: {error.reason}  -> {error.remedy}"
    for file in outcome.files:
        for finding in file.result.by_urgency:
            where = f"{file.name}:{file.source.place(finding.line, finding.column)}"
            status = f", {finding.status}" if finding.status else ""
            said = f"{finding.severity.value}{status}: {finding.reason}  -> {finding.remedy}"
            yield f"{where}: {finding.rule} {said}"
        if file.result.changed and outcome.mode is not Mode.WRITE:
            yield f"{file.name}:{file.source.place(file.first_change)}: would be changed ({file.rules})"
