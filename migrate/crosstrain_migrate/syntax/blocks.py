"""Carries out the edits of statements: lines that come, go, or move under a guard, without losing a comment.

The blank lines and comments above a statement, up to the one before it, belong to it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from . import edits as e
from .comments import comments, indented, lost_comments
from .expressions import Expressions, is_in_parentheses
from .located import Located
from .scopes import suites

_OF_STATEMENTS = (e.InsertBefore, e.InsertAfter, e.RemoveStatement, e.Guard, e.Within)
_SEMICOLON = re.compile(r"[ \t]*;")
_MARGIN = re.compile(r"( *)(.*)")
_LOOSER_THAN_AND = (ast.IfExp, ast.Lambda, ast.NamedExpr)


@dataclass
class _Line:
    """A statement, or several that share a line: `above` are the lines above that belong to it."""

    nodes: list[ast.stmt]
    above: list[str]
    start: int
    end: int
    margin: str = ""  # what its code lacks


@dataclass
class _Piece:
    """A part of a new block: lines; or a header such as `if test`, and the pieces under it."""

    above: list[str]
    code: str = ""
    header: str = ""
    under: list[_Piece] = field(default_factory=list)


class Blocks:
    """The blocks of a file with its edits made."""

    def __init__(self, located: Located) -> None:
        self._located = located
        self._text = located.text
        self._places = located.places
        self._expressions = Expressions(located)
        self.unit = self._first_indentation()
        self._edited = {
            node
            for node, edits in located.edits.items()
            if any(isinstance(one, _OF_STATEMENTS) for one in edits)
        }
        for node in self._edited:
            if not isinstance(node, ast.stmt) or self._places.is_elif(node):
                raise e.EditNotApplied(located.edits[node][0])

    def module(self) -> str:
        body = self._located.tree.body
        if not body:
            return self._text
        start = self._line_start(self._places.statement(body[0])[0])
        lines, end = self._block(body, start)
        return self._text[:start] + "\n".join(lines) + self._text[end:]

    # -- a block ---------------------------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], start: int) -> tuple[list[str], int]:
        """The new lines of a block whose first line begins at `start`, and where the old ones end."""
        pieces, rest, end = self._pieces(self._lines(body, start), self._margin(body))
        return self._flat(pieces, self._margin(body)) + rest, end

    def _margin(self, body: Sequence[ast.stmt]) -> str:
        return self._places.margin(self._places.statement(body[0])[0])

    def _lines(self, body: list[ast.stmt], start: int) -> list[_Line]:
        found: list[_Line] = []
        for node in body:
            first, last = self._places.statement(node)
            begin, end = self._line_start(first), self._line_end(last)
            if found and begin < found[-1].end:
                found[-1].nodes.append(node)
                found[-1].end = end
            else:
                above = self._text[start:begin].split("\n")[:-1]
                found.append(_Line([node], above, begin, end))
            start = end + 1
        return found

    def _pieces(self, lines: list[_Line], margin: str) -> tuple[list[_Piece], list[str], int]:
        """The pieces of a block, comments of removed lines that found no statement after them, and the end of the block."""
        made = _Made(self, margin)
        for line in lines:
            made.add(line)
        return made.body, only_comments(made.finished()), lines[-1].end

    def _flat(self, pieces: Iterable[_Piece], margin: str) -> list[str]:
        found: list[str] = []
        for piece in pieces:
            found += piece.above
            if piece.header:
                held = "\n".join(self._flat(piece.under, margin))
                found += [f"{margin}{piece.header}:", indented(held, margin, self.unit)]
            else:
                found.append(piece.code)
        return found

    # -- a statement -----------------------------------------------------------------------------------------

    def edits_of(self, line: _Line) -> list[e.Edit]:
        return [edit for node in line.nodes for edit in self._located.edits.get(node, ())]

    def ends_in(self, guard: e.Guard, line: _Line) -> bool:
        return guard.last is None or self._located.own(guard.last, guard) in line.nodes

    def code(self, line: _Line) -> str:
        """A line's code with the edits in it."""
        gone = {node for node in line.nodes if self._located.made(node, e.RemoveStatement)}
        if gone:
            code = self._without(line, gone)
        elif not self._located.is_touched(*self._numbers(line)):
            code = self._text[line.start : line.end]
        elif len(line.nodes) == 1 and any(True for _ in suites(line.nodes[0])):
            code = self._compound(line)
        else:
            code = self._expressions.code(line.start, line.end)
        return line.margin + code if code else ""

    def _numbers(self, line: _Line) -> tuple[int, int]:
        return self._places.place(line.start)[0], self._places.place(line.end)[0]

    def _without(self, line: _Line, gone: set[ast.stmt]) -> str:
        """`x = 1; y = 2` without some of them; empty without all."""
        kept = [node for node in line.nodes if node not in gone]
        if not kept:
            return ""
        spans = [self._places.span(node) for node in line.nodes]
        nexts = [*(start for start, _ in spans[1:]), spans[-1][1]]
        code = self._text[line.start : spans[0][0]]
        for node, (start, end), stop in zip(line.nodes, spans, nexts, strict=True):
            if node in kept:
                code += self._expressions.code(start, end)
                code += self._text[end:stop] if node is not kept[-1] else ""
        return code + _SEMICOLON.sub("", self._text[spans[-1][1] : line.end])

    def _compound(self, line: _Line) -> str:
        """A statement with blocks in it."""
        pieces: list[str] = []
        at = line.start
        for owner, suite in self._suites(line.nodes[0]):
            first, last = (
                self._places.statement(suite[0])[0],
                self._line_end(self._places.statement(suite[-1])[1]),
            )
            if not self._located.is_touched(self._places.place(first)[0], self._places.place(last)[0]):
                continue
            if self._places.begins_line(first):
                head = self._head(at, self._line_start(first))
                block, at = self._under(owner, suite, at, head)
                pieces.append(block)
            elif any(node in self._edited for node in suite):
                pieces.append(self._opened(suite, at, self._places.margin(line.start) + self.unit))
                at = last
        return "".join([*pieces, self._expressions.code(at, line.end)])

    def _suites(self, node: ast.stmt) -> Iterator[tuple[ast.AST, list[ast.stmt]]]:
        """The blocks of a statement in their order, those of an `elif` too, each with the statement whose it is."""
        for suite in sorted(suites(node), key=lambda one: self._places.statement(one[0])[0]):
            if len(suite) == 1 and self._places.is_elif(suite[0]):
                yield from self._suites(suite[0])
            else:
                yield node, suite

    def _head(self, start: int, first: int) -> int:
        """Where the lines above a block's first statement begin, which stands behind a header that begins at `start`."""
        while first > start:
            above = self._line_start(first - 1)
            line = self._text[above:first].strip()
            if line and not line.startswith("#"):
                break
            first = above
        return first

    def _under(self, owner: ast.AST, suite: list[ast.stmt], at: int, head: int) -> tuple[str, int]:
        """A header that begins at `at` and the block under it, from `head` on; and where the old block ends."""
        margin = self._margin(suite)
        pieces, rest, end = self._pieces(self._lines(suite, head), margin)
        only = pieces[0] if len(pieces) == 1 else None
        guards = only is not None and only.header.startswith("if ") and not only.above
        if (
            only is not None
            and guards
            and isinstance(owner, ast.If)
            and suite is owner.body
            and not owner.orelse
        ):
            # `if best:` all of whose body is left to one process: `if best and accelerator.is_main_process:`.
            start, stop = self._located.with_parentheses(owner.test)
            test = f"{_tight(self._expressions.code(start, stop))} and {only.header[len('if ') :]}"
            header = self._expressions.code(at, start) + test + self._expressions.code(stop, head)
            pieces = only.under
        else:
            header = self._expressions.code(at, head)
        body = self._flat(pieces, margin) or [margin + "pass"]
        return header + "\n".join(body + rest), end

    def _opened(self, suite: list[ast.stmt], at: int, margin: str) -> str:
        """`if x: y = 1` as an indented block."""
        spans = [self._places.span(node) for node in suite]
        lines = [_Line([node], [], *span, margin) for node, span in zip(suite, spans, strict=True)]
        pieces, rest, end = self._pieces(lines, margin)
        behind = _SEMICOLON.sub("", self._text[end : self._line_end(end)])
        header = self._expressions.code(at, spans[0][0]).rstrip() + behind
        return "\n".join([header, *(self._flat(pieces, margin) or [margin + "pass"]), *rest])

    # -- the text --------------------------------------------------------------------------------------------

    def old(self, line: _Line) -> str:
        return self._text[line.start : line.end]

    def _line_start(self, offset: int) -> int:
        return self._text.rfind("\n", 0, offset) + 1

    def _line_end(self, offset: int) -> int:
        found = self._text.find("\n", offset)
        return len(self._text) if found < 0 else found

    def _first_indentation(self) -> str:
        """The indentation of the file's first block."""
        for node in self._located.tree.body:
            for suite in suites(node):
                start, _ = self._places.statement(suite[0])
                if self._places.begins_line(start) and self._places.margin(start):
                    return self._places.margin(start)
        return "    "


class _Made:
    """A new block, made from the lines of the old one in their order."""

    def __init__(self, blocks: Blocks, margin: str) -> None:
        self.body: list[_Piece] = []
        self._blocks = blocks
        self._margin = margin
        self._pending: list[str] = []  # what stood above and in lines that are gone
        self._removed = False
        self._guard: e.Guard | None = None  # one whose last statement is still to come
        self._guarded: list[_Piece] = []
        self._shared: _Piece | None = None  # the last `with` that was made

    def add(self, line: _Line) -> None:
        edits = self._blocks.edits_of(line)
        before = [self._fresh(one.code) for one in edits if isinstance(one, e.InsertBefore)]
        after = [self._fresh(one.code) for one in edits if isinstance(one, e.InsertAfter)]
        outside = self._guard is None
        pieces = self._old(line, opens=self._removed and not self.body and outside)
        self._removed = self._removed or not pieces
        guard = next((one for one in edits if isinstance(one, e.Guard)), None)
        within = next((one for one in edits if isinstance(one, e.Within)), None)
        if outside and guard is not None:
            self._guard = guard
            self.body += before  # what goes before a guarded statement is for all processes
            before = []
        if outside and pieces and within is not None:
            pieces = [self._within(within.context, pieces, joins=not before)]
        if before:
            pieces = self._below(before, pieces)
        (self.body if self._guard is None else self._guarded).extend([*pieces, *after])
        if self._guard is not None and self._blocks.ends_in(self._guard, line):
            self._close()

    def finished(self) -> list[str]:
        """What removed lines have left at the end."""
        if self._guard is not None:
            self._close()
        return self._pending

    def _close(self) -> None:
        assert self._guard is not None
        self.body.append(_held(f"if {self._guard.test}", self._guarded))
        self._guard, self._guarded = None, []

    def _fresh(self, code: str) -> _Piece:
        """New lines, indented as the file is."""
        rows = (_MARGIN.match(line) for line in code.strip("\n").split("\n"))
        unit = self._blocks.unit
        lines = [self._margin + unit * (len(row[1]) // 4) + row[2] if row[2] else "" for row in rows if row]
        return _Piece([], "\n".join(lines))

    def _old(self, line: _Line, opens: bool) -> list[_Piece]:
        """A line after its edits, with what removed neighbours have left to it.

        opens: it is the first of its block now because others were removed, so it keeps no blank line above.
        """
        old, new = self._blocks.old(line), self._blocks.code(line)
        above = line.above
        if not new:
            self._pending += [*above, *(self._margin + one for one in comments(old))]
            return []
        if new != old:
            above = [*above, *(self._margin + one for one in lost_comments(old, new))]
        if self._pending:
            # Blank lines are no loss where the statement has its own.
            blanks, _ = _split_blanks(above)
            above = above if blanks and not only_comments(self._pending) else self._pending + above
            self._pending = []
        if opens:
            _, above = _split_blanks(above)
        return [_Piece(above, new)]

    def _within(self, context: str, pieces: list[_Piece], joins: bool) -> _Piece:
        """The pieces under `with context:`, below those that the same block above holds."""
        header = f"with {context}"
        above = self.body[-1] if self.body else None
        if joins and above is not None and above is self._shared and above.header == header:
            above.under += pieces
            return self.body.pop()
        self._shared = _held(header, pieces)
        return self._shared

    def _below(self, fresh: list[_Piece], pieces: list[_Piece]) -> list[_Piece]:
        """New lines, and below them what they are inserted before."""
        if not pieces:  # they take the place of a removed statement, and what stood above it
            fresh[0].above, self._pending = self._pending, []
            return fresh
        fresh[0].above, rest = _split_blanks(pieces[0].above)
        last = re.findall(rf"^{self._margin}(\S.*)", fresh[-1].code, re.MULTILINE)[-1]
        if last.startswith(("def ", "async def ")):
            rest = ["", *rest]
        pieces[0].above = rest
        return [*fresh, *pieces]


def _held(header: str, pieces: list[_Piece]) -> _Piece:
    """Pieces under a header; the lines above the first belong above the header."""
    above, pieces[0].above = pieces[0].above, []
    return _Piece(above, header=header, under=pieces)


def _split_blanks(lines: list[str]) -> tuple[list[str], list[str]]:
    count = next((number for number, line in enumerate(lines) if line.strip()), len(lines))
    return lines[:count], lines[count:]


def only_comments(lines: Iterable[str]) -> list[str]:
    """Only the comments: blank lines at the end of a block are no loss."""
    return [line for line in lines if line.strip()]


def _tight(test: str) -> str:
    """A test that `and` may stand behind."""
    if is_in_parentheses(test):
        return test
    node = ast.parse(f"({test})", mode="eval").body
    loose = isinstance(node, _LOOSER_THAN_AND) or (
        isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or)
    )
    return f"({test})" if loose else test
