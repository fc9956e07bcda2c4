"""A script in which a name stands for each statement that no edit concerns.

LibCST takes longer for a text than the rest of migrate together, and most edits concern few statements. LibCST therefore
rewrites the skeleton; afterwards the names are replaced by the original statements.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import accumulate

from . import edits as e
from .places import Places, Span
from .program import tree_of
from .scopes import suites

_NAME = re.compile(r"__crosstrain_kept_(\d+)__")
_INDENTED_COMMENT = re.compile(r"^[ \t\f]+#", re.MULTILINE)
_Kinds = tuple[type[ast.stmt], ...]
_SHORT = 24  # characters: about the length of a name
# These edits move or remove the statements they name, with all comments in them.
_AS_A_WHOLE = (e.RemoveStatement, e.Guard, e.Within)


class Skeleton:
    """`text`, and how its positions map to those of the original. `kept`: the statements that names stand for."""

    def __init__(self, original: Places, kept: tuple[Span, ...] = ()) -> None:
        self._original = original
        self._kept = kept
        pieces: list[str] = []
        at = 0
        for number, (start, end) in enumerate(kept):
            pieces += [original.text[at:start], _name(number)]
            at = end
        self.text = "".join([*pieces, original.text[at:]])
        self._lines = Places(self.text)
        self._shifts = [0, *accumulate(len(_name(i)) - (end - start) for i, (start, end) in enumerate(kept))]

    def place(self, line: int, column: int) -> tuple[int, int]:
        """(line, column) in characters of what a node of the original names by line and UTF-8 column.

        A place inside a statement that is kept is that of the end of its name.
        """
        offset = self._original.offset(line, column)
        number = bisect_left(self._kept, (offset, offset))
        if number:
            offset = max(offset, self._kept[number - 1][1])
        return self._lines.place(offset + self._shifts[number])

    def restored(self, text: str) -> str | None:
        """`text`, made from the skeleton, with the original statements; None where one cannot be restored exactly."""
        places = [(int(found[1]), found.start()) for found in _NAME.finditer(text)]
        if sorted(number for number, _ in places) != list(range(len(self._kept))):
            return None
        new = Places(text)
        for number, at in places:
            start, end = self._kept[number]
            several = "\n" in self._original.text[start:end]
            if several and new.margin(at) != self._original.margin(start):
                return None
        return _NAME.sub(lambda found: self._original.text[slice(*self._kept[int(found[1])])], text)


def without_end(text: str) -> tuple[str, str]:
    """A file's text, and what stands below its last statement: blank lines, and indented comments that belong to no block,
    which LibCST would not keep all."""
    if not text.rstrip().rpartition("\n")[2].lstrip().startswith("#"):
        end = text.find("\n", len(text.rstrip())) + 1 or len(text)
        return text[:end], text[end:]
    body = tree_of(text).body
    found = _INDENTED_COMMENT.search(text, Places(text).statement(body[-1])[1] if body else 0)
    at = found.start() if found else len(text)
    return text[:at], text[at:]


def skeleton(text: str, edits: Iterable[e.Edit], first: int) -> Skeleton:
    """The skeleton of a file's text, whose line 1 is the line `first` of the edits' nodes."""
    lines, own = Places(text, first), Places(text)
    tree = tree_of(text)
    touched = _first_block(tree, own)
    moving: list[Span] = []
    looked_at: _Kinds = (ast.Expr,)
    for edit in edits:
        spans = [lines.span(node) for node in e.nodes_of(edit)]
        touched += [start for start, _ in spans]
        if isinstance(edit, _AS_A_WHOLE):
            moving.append((min(spans)[0], max(end for _, end in spans)))
        elif isinstance(edit, e.AddImport):
            looked_at = (ast.Expr, ast.Import, ast.ImportFrom)
    return Skeleton(lines, tuple(sorted(_kept(tree.body, own, sorted(touched), moving, looked_at))))


def _name(number: int) -> str:
    return f"__crosstrain_kept_{number}__"


def _kept(
    body: list[ast.stmt],
    lines: Places,
    touched: list[int],
    moving: list[Span],
    looked_at: _Kinds = (ast.Expr,),
) -> Iterator[Span]:
    """Statements of a suite, and in them, that no edit concerns. Those that follow each other on lines of their own
    are one span, with the comments between them."""
    spans = [lines.statement(node) for node in body]
    begins = [*(lines.begins_line(start) for start, _ in spans), True]
    run: list[Span] = []
    for number, (node, (start, end)) in enumerate(zip(body, spans, strict=True)):
        moves = any(a <= start and end <= b for a, b in moving)
        edited = bisect_left(touched, start) < bisect_left(touched, end) or lines.is_elif(node)
        stays = not moves and not edited and not _is_looked_at(node, looked_at)
        alone = begins[number] and begins[number + 1]
        if not stays or not alone:
            yield from _as_one(run)
            run = []
        if stays and alone:
            run.append((start, end))
        elif stays:
            yield from _as_one([(start, end)])
        elif edited and not moves:
            for suite in suites(node):
                yield from _kept(suite, lines, touched, moving)
    yield from _as_one(run)


def _as_one(run: list[Span]) -> Iterator[Span]:
    if run and run[-1][1] - run[0][0] > _SHORT:
        yield run[0][0], run[-1][1]


def _is_looked_at(node: ast.stmt, kinds: _Kinds) -> bool:
    """Docstrings, and the imports of a file that gets a new one: they decide where something is inserted."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant | ast.JoinedStr)
    return isinstance(node, kinds)


def _first_block(tree: ast.Module, lines: Places) -> list[int]:
    """Where the first statement that has a block starts: LibCST takes that block's indentation for the file's."""
    for node in tree.body:
        for suite in suites(node):
            start, _ = lines.statement(suite[0])
            if lines.margin(start) and lines.begins_line(start):
                return [lines.span(node)[0]]
    return []
