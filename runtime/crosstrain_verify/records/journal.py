"""The results of the checks that the runtime makes at lines of the converted script (`crosstrain.utils.checks`)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Status = Literal["held", "not reached", "failed"]
RISING: tuple[Status, ...] = ("held", "not reached", "failed")  # of several results the last of these counts

# By the kind of a check, what is true if it held.
CLAIMS = {
    "rows": "what is gathered has one row for each row of the batch",
    "loader": "the loop goes over a prepared loader",
    "module": "the optimizer's parameters are those of the prepared model",
    "mean": "the loss is a mean over the batch",
    "evaluation": "the numbers of an evaluation can be merged",
    "alike": "learning rates and weights are the same in all processes",
    "seeds": "the processes start with the same random numbers, or differ as the script seeds them",
}


@dataclass(frozen=True)
class Check:
    """A check of one kind ("rows", "mean", ...) at a line of the script, and its result.

    status: "not reached" if the line ran, but never with anything that could be checked. message: why it failed.
    """

    kind: str
    file: str
    line: int
    status: Status
    message: str = ""

    @property
    def claim(self) -> str:
        """What is true if the check held."""
        return CLAIMS.get(self.kind, self.kind)

    def __str__(self) -> str:
        return f"{self.status}: {self.file}:{self.line}: {self.claim}"


def read(file: Path) -> tuple[Check, ...]:
    """One rank's journal. Of several entries for a place the last one counts, but a failure stays."""
    found: dict[tuple[str, str, int], Check] = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        entry = json.loads(line)
        check = Check(entry["kind"], entry["file"], entry["line"], entry["status"], entry.get("message", ""))
        key = (check.kind, check.file, check.line)
        if key not in found or found[key].status != "failed":
            found[key] = check
    return tuple(found.values())


def merged(journals: Iterable[Iterable[Check]]) -> tuple[Check, ...]:
    """The journals of several ranks or runs as one, sorted by kind and line, with the worst result for each place."""
    worst: dict[tuple[str, str, int], Check] = {}
    for check in (check for journal in journals for check in journal):
        key = (check.kind, check.file, check.line)
        if key not in worst or RISING.index(check.status) > RISING.index(worst[key].status):
            worst[key] = check
    return tuple(worst[key] for key in sorted(worst))


def summary(checks: Iterable[Check]) -> str:
    """The number of checks by result, such as "3 held, 1 not reached"."""
    counts = Counter(check.status for check in checks)
    return ", ".join(f"{counts[status]} {status}" for status in RISING if counts[status])
