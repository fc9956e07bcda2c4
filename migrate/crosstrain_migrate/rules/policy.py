"""Which rules may speak and act where: what the command line selects, and the file's own comments.

Findings stay away singly, and so do the edits that a rule asks `Policy.allows` about before it plans them: printing,
files, checkpoints. All other edits of a script are one conversion, whole or not at all. Keeping one of them away is a
refusal (CT003) and leaves the script as it was; it never gives a script that is converted by halves.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from crosstrain_migrate.results import Change, Finding, Severity
from crosstrain_migrate.syntax.edits import AddImport, Edit, InsertAfter, InsertAtStart, InsertBefore
from crosstrain_migrate.syntax.suppress import Region, Suppressions

KEPT_AWAY = "CT003"
# Rules about the tool's own work: they speak whatever is selected.
ALWAYS = "CT0"
# Without these there is no conversion: a selection that names none of them asks for findings only.
_CONVERSION = ("CT1", "CT2", "CT3", "CT6")
# These put a statement beside the one they name, which stays as it is.
BESIDE = (InsertBefore, InsertAfter, InsertAtStart, AddImport)


@dataclass(frozen=True, slots=True)
class Policy:
    """`select` empty: everything. Of two prefixes that speak of a code the longer decides; `ignore` wins a draw."""

    comments: Suppressions
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def selected(self, code: str) -> bool:
        chosen = _longest(code, self.select) if self.select and not code.startswith(ALWAYS) else 0
        return chosen > _longest(code, self.ignore)

    def allows(self, code: str, line: int) -> bool:
        """May rule `code` say or do something that nothing else relies on in line `line` (1-based)?"""
        return self.selected(code) and self.comments.allows(line, code)

    def allows_at(self, code: str, node: ast.AST) -> bool:
        """The same where a node stands; what is about a whole file stands in its first line."""
        return self.allows(code, getattr(node, "lineno", 1))

    @property
    def converts(self) -> bool:
        """Whether conversions are asked for, not findings alone."""
        return not self.select or any(
            one.startswith(family) or family.startswith(one) for one in self.select for family in _CONVERSION
        )

    @property
    def is_everything(self) -> bool:
        return not self.select and not self.ignore

    def allowed(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """The findings that nothing keeps away."""
        return tuple(one for one in findings if self.allows(one.rule, one.line))

    def refusals(self, edits: Iterable[Edit], changes: Iterable[Change] = ()) -> tuple[Finding, ...]:
        """Why the conversion that consists of `edits` must not be made: one finding for each thing in its way.

        `changes` are those of a conversion in several passes, whose later edits name nodes of other texts.
        """
        if not self.converts:
            return ()
        parts = [
            (
                one.rule,
                one.line,
                getattr(one.node, "col_offset", 0) + 1,
                isinstance(one, BESIDE),
            )
            for one in edits
        ]
        parts += [(one.rule, one.line, 1, False) for one in changes]
        found: dict[object, Finding] = {}
        left_out: dict[str, tuple[int, int]] = {}
        for rule, line, column, beside in parts:
            if not self.selected(rule):
                left_out.setdefault(rule, (line, column))
                continue
            region = self.comments.keeping_away(line, rule, beside=beside)
            if region is not None:
                found.setdefault((region.line, rule), _kept_away(region, rule, line, column))
        return (*((_left_out(left_out),) if left_out else ()), *found.values())


def _left_out(rules: dict[str, tuple[int, int]]) -> Finding:
    """What select or ignore keep out, with the first place that needs each."""
    line, column = min(rules.values())
    names = " and ".join(", ".join(sorted(rules)).rsplit(", ", 1))
    are, them = ("is", "it") if len(rules) == 1 else ("are", "them")
    reason = f"{names} {are} left out by select or ignore, and the conversion of this script needs {them}: nothing was changed"
    remedy = f"Let {names} in, or leave the file alone with # migrate: skip-file"
    return Finding(KEPT_AWAY, line, column, reason, remedy, Severity.REFUSED)


def _kept_away(region: Region, rule: str, line: int, column: int) -> Finding:
    reason = (
        f"`{region.comment}` (line {region.line}) keeps {rule} away from here, and a script is converted whole or "
        "not at all: nothing was changed"
    )
    remedy = "Remove the comment, or leave the whole file alone with # migrate: skip-file"
    return Finding(KEPT_AWAY, line, column, reason, remedy, Severity.REFUSED)


def stands_alone(code: str) -> bool:
    """Whether the rule `code` may stay away without a word about the rest of the conversion."""
    return not code.startswith(_CONVERSION)


def _longest(code: str, prefixes: tuple[str, ...]) -> int:
    return max((len(one) for one in prefixes if code.startswith(one)), default=-1)
