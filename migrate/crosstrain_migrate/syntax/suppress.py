"""Comments with which an author suppresses rules.

- `# migrate: skip` at the end of a line: nothing in that statement (for a compound one: in its header);
  alone on a line: nothing in the statement below;
- `# migrate: off` and `# migrate: on` around a block; `off` without `on` holds to the end of the file;
- `# migrate: skip-file` anywhere: nothing in the file.

`skip`, `off` and `skip-file` may name codes or their prefixes (`# migrate: skip CT2,CT401`) and then suppress
only those rules. A reason may follow (`# migrate: skip CT4 -- every rank logs to its own file`).

`rules.policy` decides what follows when a comment suppresses a part of the conversion.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from crosstrain_migrate.results import Finding, Severity

UNUSED, TODO = "CT002", "CT005"
MARK = "# TODO(crosstrain "  # begins a line that `migrate --todo` has put above what it leaves to a person

_COMMENT = re.compile(
    r"#\s*migrate:\s*(?P<verb>[\w-]+)(?:\s+(?P<codes>CT\d*(?:\s*,\s*CT\d*)*)(?![\w,]))?(?P<rest>.*)",
    re.IGNORECASE,
)
_VERBS = ("skip", "skip-file", "off", "on")
_END = 1 << 60


@dataclass(frozen=True, slots=True)
class Region:
    """Lines `first` to `last`, where the rules whose codes start with one of `codes` (all, when empty) are suppressed."""

    line: int
    column: int
    comment: str
    verb: str
    first: int
    last: int
    codes: tuple[str, ...]

    def covers(self, line: int, code: str) -> bool:
        return self.first <= line <= self.last and (not self.codes or code.startswith(self.codes))

    @property
    def of_one_statement(self) -> bool:
        return self.verb == "skip"


@dataclass(slots=True)
class Suppressions:
    """A file's suppression comments. It remembers which were needed, so that the others can be reported."""

    regions: tuple[Region, ...] = ()
    problems: tuple[Finding, ...] = ()
    _needed: set[int] = field(default_factory=set)

    @property
    def whole_file(self) -> bool:
        """Whether `# migrate: skip-file` suppresses every rule in the file."""
        return any(region.verb == "skip-file" and not region.codes for region in self.regions)

    def allows(self, line: int, code: str) -> bool:
        """May rule `code` edit or report something in line `line` (1-based) of the original?"""
        return self.keeping_away(line, code) is None

    def keeping_away(self, line: int, code: str, *, beside: bool = False) -> Region | None:
        """The comment that suppresses rule `code` in line `line`; with `beside`, one that forbids a statement next to it."""
        covering = [
            region
            for region in self.regions
            if region.covers(line, code) and not (beside and region.of_one_statement)
        ]
        self._needed.update(region.line for region in covering)
        return covering[0] if covering else None

    def reports(self, *, unused: bool) -> tuple[Finding, ...]:
        """Comments that cannot be understood and, with `unused`, those that suppressed nothing.

        Ask for the unused after all rules have run; it means nothing when only some were selected.
        """
        idle = (region for region in self.regions if unused and region.line not in self._needed)
        return self.problems + tuple(
            Finding(
                UNUSED,
                region.line,
                region.column,
                f"`{region.comment}` suppresses nothing",
                "Remove the comment.",
                Severity.NOTE,
            )
            for region in idle
        )


_SKIP_FILE = re.compile(r"^[ \t\f]*#\s*migrate:\s*skip-file\s*(--.*)?$", re.IGNORECASE | re.MULTILINE)


def skips_file(text: str) -> bool:
    """Whether a line of its own says `# migrate: skip-file`: for texts that need not parse."""
    return "skip-file" in text.lower() and _SKIP_FILE.search(text) is not None


def suppressions(text: str) -> Suppressions:
    """Reads the comments of a text that parses."""
    if "migrate:" not in text.lower():
        return Suppressions()
    regions: list[Region] = []
    problems: list[Finding] = []
    off: list[Region] = []
    for line, column, comment, first, last in _comments(text):
        found = _COMMENT.search(comment)
        if found is None:
            continue
        verb = found["verb"].lower()
        codes = tuple(code.strip().upper() for code in (found["codes"] or "").split(",") if code.strip())
        rest = found["rest"].strip()
        if verb not in _VERBS or rest[:1].isalnum():
            problems.append(_not_understood(line, column, comment))
        elif verb == "skip":
            regions.append(Region(line, column, comment, verb, first, last, codes))
        elif verb == "skip-file":
            regions.append(Region(line, column, comment, verb, 1, _END, codes))
        elif verb == "off":
            off.append(Region(line, column, comment, verb, line, _END, codes))
        elif off:
            regions += [replace(one, last=line) for one in off]
            off = []
        else:
            problems.append(_not_understood(line, column, comment))
    return Suppressions((*regions, *off), tuple(problems))


def remaining_todo(text: str) -> tuple[Finding, ...]:
    """The finding about lines that an earlier ``--todo`` has left."""
    lines = [number for number, line in enumerate(text.split("\n"), 1) if line.lstrip().startswith(MARK)]
    if not lines:
        return ()
    reason = f"{len(lines)} line{'' if len(lines) == 1 else 's'} TODO(crosstrain ...) left to be done, this is the first"
    remedy = "do what each says, take them out together with the test of WORLD_SIZE, and run migrate again"
    return (Finding(TODO, lines[0], 1, reason, remedy, Severity.REFUSED),)


def _not_understood(line: int, column: int, comment: str) -> Finding:
    remedy = "Write # migrate: skip, off, on or skip-file, then codes, then a reason after --."
    return Finding(UNUSED, line, column, f"`{comment}` is not understood", remedy, Severity.NOTE)


def _comments(text: str) -> Iterator[tuple[int, int, str, int, int]]:
    """(line, column, comment, first, last): each comment, and the lines of the statement it applies to."""
    waiting: list[tuple[int, int, str]] = []
    start: int | None = None
    try:
        for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
            if token.type == tokenize.COMMENT:
                waiting.append((token.start[0], token.start[1] + 1, token.string.rstrip()))
            elif token.type == tokenize.NEWLINE:
                yield from ((*comment, start or token.start[0], token.end[0]) for comment in waiting)
                waiting, start = [], None
            elif token.type not in (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER):
                start = start or token.start[0]
    except (tokenize.TokenError, SyntaxError):
        pass  # the parser has read the text, so nothing but its very end can be at fault
    yield from ((*comment, comment[0], comment[0]) for comment in waiting)
