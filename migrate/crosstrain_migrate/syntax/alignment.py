"""Keeps lines under the bracket that they stood under: `accelerator.print(` opens further right than `print(` did."""

from __future__ import annotations

import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

_NO_CODE = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")


@dataclass
class _Bracket:
    """An open bracket: its line, and the column of what follows it there, None where nothing does."""

    line: int
    column: int | None = None


@dataclass(frozen=True)
class _Continued:
    """A line that begins inside a bracket, and the column it begins at."""

    line: int
    column: int
    bracket: _Bracket

    @property
    def is_aligned(self) -> bool:
        return self.column == self.bracket.column


def aligned(before: str, after: str) -> str:
    """`after`, with the lines that its author had aligned with a bracket moved to where the bracket is now."""
    own, lines = before.split("\n"), after.split("\n")
    bare, new_bare = [line.strip() for line in own], [line.strip() for line in lines]
    if not any(map(_stays_open, {*bare} - {*new_bare})):
        return after
    under = {one.line for one in _continued(before) if one.is_aligned}
    blocks = SequenceMatcher(None, bare, new_bare, autojunk=False).get_matching_blocks()
    kept = {new + n + 1 for old, new, size in blocks for n in range(size) if old + n + 1 in under}
    moved: dict[int, int] = {}  # by how much a line is further right
    for one in _continued(after):
        by = moved.get(one.bracket.line, 0)
        if one.line in kept and one.bracket.column is not None:
            by += one.bracket.column - one.column
        indent = lines[one.line - 1][: one.column]
        if by and one.column + by >= 0 and "\t" not in indent:
            moved[one.line] = by
            lines[one.line - 1] = " " * (one.column + by) + lines[one.line - 1][one.column :]
    return "\n".join(lines)


def _stays_open(line: str) -> bool:
    """Whether a line opens a bracket that it does not close, with something behind it."""
    return sum(map(line.count, _OPENING)) > sum(map(line.count, _CLOSING)) and line[-1:] not in _OPENING


def _continued(text: str) -> Iterator[_Continued]:
    """The lines that begin inside a bracket, in order; not those that a string of several lines ends in."""
    opened: list[_Bracket] = []
    last = 0  # the line that the token before ends in
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        if token.type in _NO_CODE:
            continue
        line, column = token.start
        if opened and line > last:
            yield _Continued(line, column, opened[-1])
        elif (
            opened
            and opened[-1].line == line
            and opened[-1].column is None
            and token.type != tokenize.COMMENT
        ):
            opened[-1].column = column
        last = token.end[0]
        if token.type == tokenize.OP and token.string in _OPENING:
            opened.append(_Bracket(line))
        elif token.type == tokenize.OP and token.string in _CLOSING and opened:
            opened.pop()
