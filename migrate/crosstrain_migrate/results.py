"""The public nouns: what is asked of a migration, what it found and what it changed. Frozen, and free of any stage's machinery."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path


@dataclass(frozen=True)
class Observed:
    """What was seen when `script` ran: the text of its facts file (see `core.observed`)."""

    script: Path
    document: str


@dataclass(frozen=True)
class Options:
    """What the command line or the configuration asks for."""

    runtime: str = "crosstrain"
    select: tuple[str, ...] = ()  # codes or prefixes; none: every rule
    ignore: tuple[str, ...] = ()
    follow: bool = True
    strict: bool = False  # what would be assumed is refused
    todo: bool = False  # where a script is refused: a line for each thing left to a person
    observed: Observed | None = None
    advice: bool = False  # with a conversion, one note of each rule of XLA_ADVICE that is not ignored


class Severity(str, Enum):
    """How much a finding asks of its reader."""

    REFUSED = "refused"  # the conversion was not made because of this
    ASSUMED = "assumed"  # converted on the assumption that this is so; the runtime checks it
    OBSERVED = "observed"  # so it was in a run of the script; the cheap checks at run time stay
    NOTE = "note"  # worth knowing


# What needs a person first.
URGENCY = (Severity.REFUSED, Severity.ASSUMED, Severity.OBSERVED, Severity.NOTE)


class Confidence(str, Enum):
    APPLIED = "applied"
    REVIEW = "applied, please review"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something the tool did not, or could not, convert: where, why and what to do.

    `line` and `column` are 1-based (column counts characters); `remedy` is one imperative sentence, for an
    assumption how it is checked. `kind`: of an assumption (see `assumptions`), else "". `status`: what --verify found
    out about it: "proven", "not reached" or "failed"; "contradicted" where an observed run has shown that it is not so.
    """

    rule: str
    line: int
    column: int
    reason: str
    remedy: str
    severity: Severity
    kind: str = ""
    status: str = ""


@dataclass(frozen=True, slots=True)
class Change:
    """One edit that was made. `line` is 1-based in the original text."""

    rule: str
    line: int
    reason: str
    confidence: Confidence = Confidence.APPLIED


@dataclass(frozen=True, slots=True)
class RoleFact:
    """What a value is in training, and how we know: "`net`, line 34: module, because line 41 ..."."""

    name: str
    role: str
    line: int
    evidence: str


@dataclass(frozen=True, slots=True)
class InputError:
    """A file that could not be read, parsed or written. One clear message; exit code 2."""

    path: Path
    reason: str
    remedy: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.path, self.line, self.column) if part is not None)
        return f"{where}: {self.reason}. {self.remedy}"


class FileOutcome(str, Enum):
    """What became of one file."""

    CONVERTED = "converted"  # everything is known
    ASSUMED = "converted with assumptions"
    REFUSED = "refused"
    UNCHANGED = "unchanged"  # there was nothing to do


@dataclass(frozen=True, slots=True)
class FileResult:
    """What one file's migration came to. `before == after` when nothing was planned or all was refused.

    Texts are decoded with "\\n" line ends and without a byte order mark; `sources` restores both on writing.
    """

    path: Path
    before: str
    after: str
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    roles: tuple[RoleFact, ...] = ()
    trains: bool = False  # the file holds a training loop
    error: InputError | None = None
    extras: dict[str, str] = field(default_factory=dict)

    @property
    def changed(self) -> bool:
        return self.before != self.after

    @property
    def refused(self) -> bool:
        return any(finding.severity is Severity.REFUSED for finding in self.findings)

    @property
    def assumptions(self) -> tuple[Finding, ...]:
        """What the conversion takes for granted."""
        return tuple(finding for finding in self.findings if finding.severity is Severity.ASSUMED)

    @property
    def outcome(self) -> FileOutcome:
        if self.refused:
            return FileOutcome.REFUSED
        if not self.changed:
            return FileOutcome.UNCHANGED
        return FileOutcome.ASSUMED if self.assumptions else FileOutcome.CONVERTED

    @property
    def by_urgency(self) -> list[Finding]:
        """The findings as a reader needs them: refused, then assumed, then notes, each from top to bottom."""
        return sorted(
            self.findings, key=lambda one: (URGENCY.index(one.severity), one.line, one.column, one.rule)
        )
