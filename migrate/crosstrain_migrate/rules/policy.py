"""Which rules may report and edit where: the selection on the command line, and the file's own comments.

Each finding can be suppressed by itself, and so can the edits that a rule asks `Policy.allows` about before it plans
them: printing, files, checkpoints. All other edits of a script are one conversion, made whole or not at all. Suppressing
one of those is a refusal (CT003) and leaves the script as it was.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from crosstrain_migrate.results import Change, Finding, Severity
from crosstrain_migrate.syntax.edits import AddImport, Edit, InsertAfter, InsertBefore
from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.suppress import Region, Suppressions

KEPT_AWAY = "CT003"
# Rules about the tool's own work: they report whatever is selected.
ALWAYS = "CT0"
# Without these there is no conversion: a selection that names none of them asks for findings only.
_CONVERSION = ("CT1", "CT2", "CT3", "CT6")
# These edits add a statement beside the one they name, which stays as it is.
BESIDE = (InsertBefore, InsertAfter, AddImport)


@dataclass(frozen=True, slots=True)
class Policy:
    """An empty `select` selects everything. The longest prefix of a code decides; `ignore` wins a draw."""

    comments: Suppressions
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()

    def selected(self, code: str) -> bool:
        chosen = _longest(code, self.select) if self.select and not code.startswith(ALWAYS) else 0
        return chosen > _longest(code, self.ignore)

    def allows(self, code: str, line: int) -> bool:
        """Whether rule `code` may report or edit at `line` (1-based), where nothing else relies on it."""
        return self.selected(code) and self.comments.allows(line, code)

    def allows_at(self, code: str, node: ast.AST) -> bool:
        """The same for the line of a node; the first line, where it is about the whole file."""
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
        parts = [(one.rule, one.line, place_of(one.node)[1] + 1, isinstance(one, BESIDE)) for one in edits]
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
    """The finding for rules that select or ignore leave out, at the first place that needs one."""
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
    """Whether the rest of the conversion can do without the rule `code`."""
    return not code.startswith(_CONVERSION)


def _longest(code: str, prefixes: tuple[str, ...]) -> int:
    return max((len(one) for one in prefixes if code.startswith(one)), default=-1)
