"""The outcome of one run, for the reports and the exit code."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from crosstrain_migrate.choices import FailOn, Mode
from crosstrain_migrate.files.sources import STDIN, Piece, Source
from crosstrain_migrate.results import URGENCY, Change, FileResult, Finding, InputError

_IN_PACKAGE = re.compile(r"^from[ \t]+\.", re.M)


@dataclass(frozen=True, slots=True)
class Migrated:
    """One file that has something to say: as read, and what became of it."""

    source: Source
    result: FileResult

    @property
    def after(self) -> bytes:
        """The bytes to write. Raises `sources.Unusable` where the file's encoding lacks a character."""
        return self.source.encode(self.result.after) if self.result.changed else self.source.data

    @property
    def name(self) -> str:
        return display_name(self.source.path)

    @property
    def launched(self) -> str:
        """How the launcher is given the file: by `-m` where it imports from the package around it."""
        parts = Path(self.name).with_suffix("").parts
        is_module = (
            len(parts) > 1 and all(map(str.isidentifier, parts)) and _IN_PACKAGE.search(self.result.after)
        )
        return f"-m {'.'.join(parts)}" if is_module else self.name

    @property
    def rules(self) -> str:
        """The codes of the rules that change it: "CT101, CT203"."""
        return ", ".join(sorted({change.rule for change in self.result.changes}))

    @property
    def first_change(self) -> int:
        """The line of the text before in which its first change is."""
        return min((change.line for change in self.result.changes), default=1)

    def parts(self) -> list[Part]:
        """What there is to compare: the file, or each changed cell of a notebook."""
        found = [Part(piece, []) for piece in self.source.pieces(self.result.after)]
        for change in self.result.changes if found else ():
            nearest = min(found, key=lambda part: part.distance(change.line))
            inner = min(max(change.line - nearest.piece.first, 0), nearest.height - 1) + 1
            nearest.changes.append(replace(change, line=inner))
        return found


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a file with the changes in it, whose lines count from its own first."""

    piece: Piece
    changes: list[Change]

    @property
    def height(self) -> int:
        return self.piece.before.count("\n") + 1

    def distance(self, line: int) -> int:
        """How far a line of the file's text is from this piece."""
        return max(self.piece.first - line, 0, line - self.piece.first - self.height + 1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """`files` holds every file with changes, findings or training code; `untouched` counts the others too.

    idle: files that were asked for by name and hold nothing to do. broken: files that mention torch, were found in a
    directory and do not parse. proof: the report of `--verify`, as `crosstrain verify` writes it. code: what the command
    ends with.
    """

    files: tuple[Migrated, ...]
    errors: tuple[InputError, ...]
    untouched: int
    mode: Mode
    runtime: str
    proof: dict[str, Any] | None = None
    idle: tuple[Migrated, ...] = ()
    broken: tuple[InputError, ...] = ()
    code: int = 0

    @property
    def changed(self) -> tuple[Migrated, ...]:
        return tuple(file for file in self.files if file.result.changed)

    @property
    def by_urgency(self) -> list[Migrated]:
        """The files as a reader needs them: those with the most urgent findings first, those without any last."""
        return sorted(
            self.files,
            key=lambda file: min(
                (URGENCY.index(one.severity) for one in file.result.findings), default=len(URGENCY)
            ),
        )

    @property
    def refused(self) -> tuple[Migrated, ...]:
        return tuple(file for file in self.files if file.result.refused)

    @property
    def assumptions(self) -> int:
        """How many assumptions the conversions rest on."""
        return sum(len(file.result.assumptions) for file in self.files)

    def exit_code(self, fail_on: frozenset[FailOn]) -> int:
        """0 done, or nothing to do; 1 something in `fail_on` came up; 2 an input could not be used."""
        if self.errors:
            return 2
        came_up = {
            FailOn.EDITS: bool(self.changed),
            FailOn.REFUSED: bool(self.refused),
            FailOn.ASSUMPTIONS: bool(self.assumptions),
            FailOn.FINDINGS: any(file.result.findings for file in self.files),
        }
        return int(any(came_up[one] for one in fail_on))

    def summary(self) -> str:
        """ "3 files would be changed (2 assumptions), 1 refused, 12 untouched"."""
        changed = len(self.changed)
        verb = "changed" if self.mode is Mode.WRITE else "would be changed"
        rests = f" ({self._rests_on()})" if self.assumptions else ""
        parts = [f"{_count(changed, 'file')} {verb}{rests}"]
        if self.refused:
            parts.append(f"{len(self.refused)} refused")
        parts.append(f"{self.untouched} untouched")
        if self.errors:
            parts.append(f"{len(self.errors)} not usable")
        return ", ".join(parts)

    def _rests_on(self) -> str:
        """ "3 assumptions", and after --verify "3 assumptions: 2 proven, 1 not reached"."""
        found = Counter(one.status for file in self.files for one in file.result.assumptions)
        statuses = ", ".join(f"{number} {status}" for status, number in sorted(found.items()) if status)
        return _count(self.assumptions, "assumption") + (f": {statuses}" if statuses else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def sentences(said: Finding | InputError) -> str:
    """Reason and remedy as running text."""
    return f"{said.reason.rstrip('.')}. {said.remedy}"


def located(file: Migrated, finding: Finding) -> tuple[int, int | None, str]:
    """(line, column, text) for a reader that knows only lines of files: a notebook's are those of its JSON."""
    if not file.source.is_cells:
        return finding.line, finding.column, sentences(finding)
    where = file.source.spoken(finding.line)
    return file.source.file_line(finding.line), None, f"{where}: {sentences(finding)}"


def display_name(path: Path) -> str:
    """Relative to the working directory for what lies below it: as editors and `git apply` expect."""
    if path == STDIN:
        return "<stdin>"
    if not path.is_absolute() and ".." not in path.parts:
        return str(path)
    try:
        return str(path.resolve().relative_to(Path.cwd().resolve()))
    except (ValueError, OSError):
        return str(path.absolute())
