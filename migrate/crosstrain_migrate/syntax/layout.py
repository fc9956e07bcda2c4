"""Breaks lines that the conversion has made too long inside their brackets, as a person would.

Only new lines are touched, and only in brackets, where a line break means nothing to Python.
"""

from __future__ import annotations

import io
import itertools
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from tokenize import TokenInfo

from .alignment import aligned
from .program import join, parts

NARROW, WIDE = 88, 120
UNBROKEN = 100  # a line a little too long reads better than two
A_LITTLE = 12  # characters
SAME = 0.8  # difflib's ratio: the author's line, with something changed in it
_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")
_TRAILERS = _OPENING | _CLOSING | {"."}
_WORDS = frozenset({"if", "and", "or", "not", "in", "is", "lambda", "await", "yield"})
_LOOSEST = (frozenset({"or"}), frozenset({"and"}), frozenset({"+", "-"}), frozenset({"*", "/", "//", "@"}))
_ASSIGNS = frozenset({"=", "+=", "-=", "*=", "/=", "//=", "%=", "**=", "@=", "&=", "|=", "^=", "<<=", ">>="})
_BLANK = {tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
_ABOUT_ITS_LINE = re.compile(r"#.*\b(noqa|type:|pragma|pylint|fmt:|migrate:)")
_ADDED = re.compile(r"\b(self\.)?accelerator\.(?=print\()")


def width_of(lines: Iterable[str]) -> int:
    """How long a line of a file may become: as long as its author's lines, within limits."""
    return min(max(NARROW, max((len(line) for line in lines), default=0)), WIDE)


def wrapped(before: str, after: str) -> str:
    """`after`, a script or a program, with its new lines broken where they are too long, and old ones aligned as before."""
    pairs = zip(parts(before), parts(after), strict=True)
    return join(after, [_wrapped(old.text, aligned(old.text, new.text)) for old, new in pairs])


def _wrapped(before: str, after: str) -> str:
    own, lines = before.split("\n"), after.split("\n")
    limit = max(width_of(own), UNBROKEN)
    kept = {line.strip() for line in own}  # also lines that now print on one process, or are indented further
    unbroken = [line for line in kept if len(line) > limit]  # the author's own long lines
    long = [
        index
        for index, line in enumerate(lines)
        if len(line) > limit
        and _ADDED.sub("", line).strip() not in kept
        and not _is_left_long(line.strip(), unbroken)
    ]
    if not long:
        return after
    unit, rows = _rows(after)
    for index in long:
        row = rows.get(index + 1)
        if row is not None and not _ABOUT_ITS_LINE.search(lines[index]):
            end = "\r" if lines[index].endswith("\r") else ""
            pieces = _Line(lines[index].rstrip(), unit, limit).laid_out(row)
            lines[index] = f"{end}\n".join(pieces) + end
    return "\n".join(lines)


def _is_left_long(line: str, unbroken: list[str]) -> bool:
    """Whether the author wrote the line as long, or nearly."""
    same = [old for old in unbroken if len(line) <= len(old) + A_LITTLE]
    return bool(get_close_matches(line, same, n=1, cutoff=SAME))


@dataclass
class _Row:
    """The tokens of a line; `inside`: it goes on in brackets that an earlier line opened."""

    inside: bool
    tokens: list[TokenInfo] = field(default_factory=list)


def _rows(text: str) -> tuple[str, dict[int, _Row]]:
    """The unit of indentation, and each line that is not part of a string of several lines."""
    unit, depth = "", 0
    rows: dict[int, _Row] = {}
    torn: set[int] = set()
    for token in _whole_strings(tokenize.generate_tokens(io.StringIO(text, newline="").readline)):
        first, last = token.start[0], token.end[0]
        if token.type == tokenize.INDENT:
            unit = unit or token.string
        elif token.type not in _BLANK:
            rows.setdefault(first, _Row(depth > 0)).tokens.append(token)
            torn.update(range(first, last + 1) if last > first else ())
        depth += _deeper(token)
    return unit or "    ", {number: row for number, row in rows.items() if number not in torn}


def _deeper(token: TokenInfo) -> int:
    """1 for an opening bracket, -1 for a closing one."""
    return (token.string in _OPENING) - (token.string in _CLOSING) if token.type == tokenize.OP else 0


def _whole_strings(tokens: Iterable[TokenInfo]) -> Iterator[TokenInfo]:
    """An f-string as one token: from Python 3.12 on it is many."""
    opened: list[TokenInfo] = []
    for token in tokens:
        kind = tokenize.tok_name[token.type]
        if kind == "FSTRING_START":
            opened.append(token)
        elif kind == "FSTRING_END":
            start = opened.pop()
            token = TokenInfo(tokenize.STRING, "", start.start, token.end, token.line)
        if not opened:
            yield token


@dataclass(frozen=True)
class _Pair:
    """Brackets that open and close in one line: the indexes of their tokens."""

    opening: int
    closing: int
    subscript: bool


@dataclass(frozen=True)
class _Line:
    text: str
    unit: str
    limit: int

    def laid_out(self, row: _Row) -> list[str]:
        tokens = [token for token in row.tokens if token.type != tokenize.COMMENT]
        if not tokens or sum(map(_deeper, tokens)) > 0:
            return [self.text]  # the author breaks it in brackets of his own choice
        if any(token.string == ";" for _, token in _outermost(tokens)):
            return [self.text]  # and where several statements share a line, the line is what was wanted
        indent, behind = self.text[: tokens[0].start[1]], self.text[tokens[-1].end[1] :]
        if row.inside and len(list(_parts(tokens))) > 1:
            *lines, last = self._body(tokens, indent)
            return [*lines, last + behind]
        goes_on = row.inside or behind.rstrip().endswith("\\")  # in brackets, or behind a backslash
        value = None if goes_on else _value(tokens)
        if value is not None and _operators(tokens[value:]):
            opening = f"{indent}{self._source(tokens[:value])} ("
            return [opening, *self._body(tokens[value:], indent + self.unit), f"{indent}){behind}"]
        return self._split(tokens, indent, behind)

    def _source(self, tokens: list[TokenInfo]) -> str:
        return self.text[tokens[0].start[1] : tokens[-1].end[1]]

    def _fits(self, tokens: list[TokenInfo], indent: str) -> bool:
        return len(indent) + len(self._source(tokens)) <= self.limit

    def _split(self, tokens: list[TokenInfo], indent: str, behind: str = "") -> list[str]:
        """The lines of these tokens; what stands in the brackets chosen goes on lines of its own."""
        pair = None if self._fits(tokens, indent) else self._best(tokens, indent)
        if pair is None:
            return [indent + self._source(tokens) + behind]
        head, tail = tokens[: pair.opening + 1], tokens[pair.closing :]
        body = tokens[pair.opening + 1 : pair.closing]
        return [
            indent + self._source(head),
            *self._body(body, indent + self.unit),
            indent + self._source(tail) + behind,
        ]

    def _body(self, tokens: list[TokenInfo], indent: str) -> list[str]:
        """What stands in brackets: as many of its parts in a line as fit."""
        if self._fits(tokens, indent):
            return [indent + self._source(tokens)]
        terms = _terms(tokens)
        if len(terms) > 1:
            return [line for term in terms for line in self._body(term, indent)]
        lines: list[str] = []
        row: list[TokenInfo] = []
        for part in _parts(tokens):
            if row and not self._fits(row + part, indent):
                lines += self._split(row, indent)
                row = []
            row = row + part
        return lines + self._split(row, indent)

    def _best(self, tokens: list[TokenInfo], indent: str) -> _Pair | None:
        """The last brackets whose contents fit in a line of their own, or else those that hold most."""
        outer = _pairs(tokens)
        pairs = [p for p in outer if not p.subscript] or outer
        if not pairs:
            return None
        for pair in reversed(pairs):
            head, tail = tokens[: pair.opening + 1], tokens[pair.closing :]
            body = tokens[pair.opening + 1 : pair.closing]
            if self._fits(head, indent) and self._fits(tail, indent) and self._fits(body, indent + self.unit):
                return pair
        return max(pairs, key=lambda p: len(self._source(tokens[p.opening : p.closing])))


def _pairs(tokens: list[TokenInfo]) -> list[_Pair]:
    """The outermost brackets that hold something."""
    opened: list[int] = []
    found: list[_Pair] = []
    for index, token in enumerate(tokens):
        if _deeper(token) > 0:
            opened.append(index)
        elif _deeper(token) < 0 and opened:
            start = opened.pop()
            before = tokens[start - 1] if start else None
            adjoins = before is not None and before.end == tokens[start].start
            if index > start + 1:
                found = [pair for pair in found if pair.opening < start]
                found.append(_Pair(start, index, tokens[start].string == "[" and adjoins))
    return found


def _value(tokens: list[TokenInfo]) -> int | None:
    """Where the expression begins that the whole of a simple statement returns or assigns."""
    if tokens[0].string == "return":
        return 1
    found = [index for index, token in _outermost(tokens) if token.string in _ASSIGNS]
    if not found or _joins(tokens):
        return None
    return found[-1] + 1


def _joins(tokens: list[TokenInfo]) -> bool:
    """`if x: y = 1`, `x = 1; y = 2`: more than one statement in the line."""
    return any(token.string in {":", ";"} for _, token in _outermost(tokens))


def _operators(tokens: list[TokenInfo]) -> bool:
    """Whether an expression is more than names, calls and subscripts, so that no bracket holds all of it."""
    return any(
        (token.type == tokenize.OP and token.string not in _TRAILERS) or token.string in _WORDS
        for _, token in _outermost(tokens)
    )


def _terms(tokens: list[TokenInfo]) -> list[list[TokenInfo]]:
    """The clauses of a comprehension; or what the operators that bind least separate, each with its operator in front;
    one term if commas do."""
    outermost = [(index, token.string) for index, token in _outermost(tokens) if index]
    loops = [index for index, text in outermost if text == "for"]
    if loops:
        tests = [index for index, text in outermost if text == "if" and index > loops[0]]
        return _cut(tokens, sorted([*loops, *tests]))
    here = {text for _, text in outermost}
    binding = next((group for group in _LOOSEST if group & here), frozenset())
    if here & {",", "lambda", "for", "if", "="}:
        return [tokens]
    return _cut(tokens, [index for index, text in outermost if text in binding])


def _cut(tokens: list[TokenInfo], places: list[int]) -> list[list[TokenInfo]]:
    return [tokens[start:end] for start, end in itertools.pairwise([0, *places, len(tokens)])]


def _outermost(tokens: list[TokenInfo]) -> Iterator[tuple[int, TokenInfo]]:
    """The tokens that no bracket holds, with their places."""
    depth = 0
    for index, token in enumerate(tokens):
        depth += min(_deeper(token), 0)
        if not depth:
            yield index, token
        depth += max(_deeper(token), 0)


def _parts(tokens: list[TokenInfo]) -> Iterator[list[TokenInfo]]:
    """What commas separate, each with its comma."""
    depth, part = 0, []
    for token in tokens:
        part.append(token)
        depth += _deeper(token)
        if token.type == tokenize.OP and token.string == "," and not depth:
            yield part
            part = []
    if part:
        yield part
