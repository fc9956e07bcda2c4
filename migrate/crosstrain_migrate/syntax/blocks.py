"""Statement lists of the concrete tree: inserting, removing and guarding lines without losing a comment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import libcst as cst

from . import edits as e
from .edit_plan import EditPlan, first_of, of_kind


class Blocks:
    """Rebuilds the bodies of a tree for the statement edits of a plan."""

    def __init__(self, plan: EditPlan) -> None:
        self.plan = plan

    def indented(self, original: cst.IndentedBlock, updated: cst.IndentedBlock) -> cst.IndentedBlock:
        if not any(self._edits(statement) for statement in original.body):
            return updated
        body, rest = self.rebuild(original.body, updated.body)
        return updated.with_changes(body=body or [_pass()], footer=[*only_comments(rest), *updated.footer])

    def one_line(
        self, original: cst.SimpleStatementSuite, updated: cst.SimpleStatementSuite
    ) -> cst.BaseSuite:
        """`if x: y = 1` becomes an indented block when one of its statements is edited."""
        edits = [self.plan.edits_of(small) for small in original.body]
        if all(isinstance(edit, e.ReplaceStatement) for own in edits for edit in own):
            return updated
        body, rest = self._rebuild(_lines_of(original), _lines_of(updated), edits)
        footer = only_comments(rest)
        return cst.IndentedBlock(body=body or [_pass()], header=updated.trailing_whitespace, footer=footer)

    def rebuild(
        self, original: Sequence[cst.BaseStatement], updated: Sequence[cst.BaseStatement]
    ) -> tuple[list[cst.BaseStatement], list[cst.EmptyLine]]:
        """The new body, and comments of removed lines that found no statement after them."""
        return self._rebuild(original, updated, [self._edits(statement) for statement in original])

    def guards_whole(self, original: cst.BaseSuite, updated: cst.BaseSuite) -> cst.If | None:
        """The `if` of a guard that holds all of a body, where nothing else was put into it."""
        if not isinstance(original, cst.IndentedBlock) or len(updated.body) != 1:
            return None
        only = updated.body[0]
        if not isinstance(only, cst.If) or only.orelse is not None or only.leading_lines:
            return None
        return only if of_kind(self._edits(original.body[0]), e.Guard) else None

    def _edits(self, statement: cst.BaseStatement) -> Sequence[e.Edit]:
        if isinstance(statement, cst.SimpleStatementLine):
            return [edit for small in statement.body for edit in self.plan.edits_of(small)]
        return self.plan.edits_of(statement)

    def _rebuild(
        self, original: Sequence[Any], updated: Sequence[Any], edits: Sequence[Sequence[e.Edit]]
    ) -> tuple[list[Any], list[cst.EmptyLine]]:
        body: list[cst.BaseStatement] = []
        pending: list[cst.EmptyLine] = []
        removed = False
        guard: e.Guard | None = None  # one whose last statement is still to come
        guarded: list[cst.BaseStatement] = []
        shared: cst.With | None = None
        for old, new, own in zip(original, updated, edits, strict=True):
            before, after = of_kind(own, e.InsertBefore), of_kind(own, e.InsertAfter)
            self.plan.done.update([*before, *after])
            outside = guard is None
            pieces, pending = self._one(old, new, own, pending, opens=removed and not body and outside)
            removed = removed or not pieces
            if outside and (guard := first_of(own, e.Guard)) is not None:
                self.plan.done.add(guard)
                # What goes before a guarded statement is for all processes.
                body.extend(self._with_insertions([], before, []))
                before = []
            if outside and pieces and (within := first_of(own, e.Within)) is not None:
                self.plan.done.add(within)
                above = body.pop() if body and body[-1] is shared and not before else None
                shared = _within(within.context, pieces, above)
                pieces = [shared]
            replaced = not pieces and bool(before)
            is_last = guard is not None and (
                guard.last is None or self.plan.nodes.get(guard.last) in _parts(old)
            )
            behind = after if is_last else []  # what goes behind a guard is for all processes, too
            pieces = self._with_insertions(pieces, before, after if not is_last else [])
            shared = _as_left(shared, pieces)
            if replaced:  # what takes the place of a removed statement gets what stood above that
                pieces[0] = pieces[0].with_changes(leading_lines=pending)
                pending = []
            (body if guard is None else guarded).extend(pieces)
            if guard is not None and is_last:
                body += [_guarded(guard.test, guarded), *self._with_insertions([], [], behind)]
                guard, guarded = None, []
        if guard is not None:
            body.append(_guarded(guard.test, guarded))
        return body, pending

    def _one(
        self, old: Any, new: Any, edits: Sequence[e.Edit], pending: list[cst.EmptyLine], opens: bool
    ) -> tuple[list[Any], list[cst.EmptyLine]]:
        """One statement after its edits, with the comments that removed neighbours left to it.

        opens: it is the first of its block now because others were removed, so it keeps no blank line above.
        """
        if removals := of_kind(edits, e.RemoveStatement):
            self.plan.done.update(removals)
            new = self._without(old, new, removals)
            if new is None:
                comments = [cst.EmptyLine(comment=comment) for comment in _comments_in(old)]
                return [], [*pending, *leading_of(old), *comments]
        if pending or opens:
            new = _with_leading(new, pending, opens)
        return [new], []

    def _without(self, old: Any, new: Any, removals: list[e.RemoveStatement]) -> Any:
        if not isinstance(old, cst.SimpleStatementLine):
            return None
        gone = {id(self.plan.nodes[edit.node]) for edit in removals}
        kept = [n for o, n in zip(old.body, new.body, strict=True) if id(o) not in gone]
        if not kept:
            return None
        kept[-1] = kept[-1].with_changes(semicolon=cst.MaybeSentinel.DEFAULT)
        return new.with_changes(body=kept)

    def _with_insertions(
        self, pieces: list[cst.BaseStatement], before: list[e.InsertBefore], after: list[e.InsertAfter]
    ) -> list[cst.BaseStatement]:
        fresh = [statement for edit in before for statement in self._parsed(edit.code)]
        if fresh and pieces:
            blanks, rest = _split_blanks(leading_of(pieces[0]))
            fresh[0] = fresh[0].with_changes(leading_lines=blanks)
            if isinstance(fresh[-1], cst.FunctionDef):
                rest = [cst.EmptyLine(indent=False), *rest]
            pieces = [pieces[0].with_changes(leading_lines=rest), *pieces[1:]]
        return [*fresh, *pieces, *(statement for edit in after for statement in self._parsed(edit.code))]

    def _parsed(self, code: str) -> list[cst.BaseStatement]:
        module = self.plan.module
        return list(cst.parse_module(code + "\n", config=module.config_for_parsing).body)


def _pass() -> cst.SimpleStatementLine:
    return cst.SimpleStatementLine([cst.Pass()])


def _lines_of(suite: cst.SimpleStatementSuite) -> list[cst.SimpleStatementLine]:
    """`x = 1; y = 2` behind a colon as lines of their own."""
    plain = (small.with_changes(semicolon=cst.MaybeSentinel.DEFAULT) for small in suite.body)
    return [cst.SimpleStatementLine([small]) for small in plain]


def _parts(statement: cst.BaseStatement) -> list[cst.CSTNode]:
    return [statement, *statement.body] if isinstance(statement, cst.SimpleStatementLine) else [statement]


def leading_of(statement: cst.BaseStatement) -> Sequence[cst.EmptyLine]:
    """The lines above a statement: every kind of statement may have some, which their base class does not say."""
    assert isinstance(statement, LEADING)
    return statement.leading_lines


def _split_blanks(lines: Sequence[cst.EmptyLine]) -> tuple[list[cst.EmptyLine], list[cst.EmptyLine]]:
    count = next((i for i, line in enumerate(lines) if line.comment is not None), len(lines))
    return list(lines[:count]), list(lines[count:])


def _comments_in(node: cst.CSTNode) -> list[cst.Comment]:
    """Every comment inside a statement, its own leading lines excepted."""
    leading = set(map(id, getattr(node, "leading_lines", ())))
    found: list[cst.Comment] = []
    work = [node]
    while work:
        part = work.pop()
        if isinstance(part, cst.Comment):
            found.append(part)
        work.extend(child for child in reversed(part.children) if id(child) not in leading)
    return found


# Statements that may have comment lines above them.
LEADING = (cst.SimpleStatementLine, cst.BaseCompoundStatement)
_SUITES = ("body", "orelse", "finalbody", "handlers", "cases", "leading_lines")


def with_lost_comments(original: cst.CSTNode, updated: Any) -> Any:
    """Comments that stood inside the statement, in brackets, with what an edit took out: they go above it."""
    lost = Counter(comment.value for comment in _own_comments(original))
    lost -= Counter(comment.value for comment in _own_comments(updated))
    if not lost:
        return updated
    lines = []
    for comment in _own_comments(original):
        if lost[comment.value] > 0:
            lost[comment.value] -= 1
            lines.append(cst.EmptyLine(comment=comment))
    return updated.with_changes(leading_lines=[*updated.leading_lines, *lines])


def _own_comments(statement: cst.CSTNode) -> list[cst.Comment]:
    """The comments in a statement, of a compound one those in its header; comment lines above are none of them."""
    if isinstance(statement, cst.SimpleStatementLine):
        return _comments_in(statement)
    body = getattr(statement, "body", None)
    skipped = _SUITES if isinstance(body, cst.IndentedBlock) else _SUITES[1:]
    inner: set[int] = set()
    for name in skipped:
        value = getattr(statement, name, None)
        inner.update(map(id, value if isinstance(value, tuple | list) else [value]))
    found = [c for child in statement.children if id(child) not in inner for c in _comments_in(child)]
    if isinstance(body, cst.IndentedBlock) and body.header.comment is not None:
        found.append(body.header.comment)
    return found


def _with_leading(new: cst.BaseStatement, pending: list[cst.EmptyLine], first: bool) -> cst.BaseStatement:
    """The statement below the lines left to it; the blank ones are no loss where it has its own, or is the first."""
    own = list(leading_of(new))
    blanks, _ = _split_blanks(own)
    lines = own if blanks and not only_comments(pending) else [*pending, *own]
    if first:
        _, lines = _split_blanks(lines)
    return new.with_changes(leading_lines=lines)


def only_comments(lines: Sequence[cst.EmptyLine]) -> list[cst.EmptyLine]:
    """Only the comments: blank lines at the end of a block are no loss."""
    return [line for line in lines if line.comment is not None]


def _within(context: str, statements: list[cst.BaseStatement], above: cst.BaseStatement | None) -> cst.With:
    """The statements under `with context:`, below those that the same block above holds."""
    if isinstance(above, cst.With):
        return above.with_deep_changes(above.body, body=[*above.body.body, *statements])
    block, leading = _indented(statements)
    return cst.With([cst.WithItem(cst.parse_expression(context))], block, leading_lines=leading)


def _as_left(shared: cst.With | None, pieces: list[cst.BaseStatement]) -> cst.With | None:
    """That `with`, as what was put above it has left it."""
    held = (p for p in pieces if isinstance(p, cst.With) and shared is not None and p.body is shared.body)
    return next(held, shared)


def _guarded(test: str, statements: list[cst.BaseStatement]) -> cst.If:
    block, leading = _indented(statements)
    return cst.If(cst.parse_expression(test), block, leading_lines=leading)


def _indented(statements: list[cst.BaseStatement]) -> tuple[cst.IndentedBlock, Sequence[cst.EmptyLine]]:
    """A block of these statements, and the lines above the first, which belong above the block's header."""
    first, *others = statements
    return cst.IndentedBlock([first.with_changes(leading_lines=[]), *others]), leading_of(first)
