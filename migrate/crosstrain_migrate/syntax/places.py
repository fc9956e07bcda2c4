"""Where the nodes of a tree stand in their text."""

from __future__ import annotations

import ast
import re
from bisect import bisect_right
from typing import cast

from .scopes import suites

Span = tuple[int, int]  # offsets in characters: the first, and the one after the last


class Places:
    """Offsets of places that nodes name by line and UTF-8 column; `first` is the number of the text's first line."""

    def __init__(self, text: str, first: int = 1) -> None:
        self.text = text
        self._first = first
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]
        self._ascii = text.isascii()

    def offset(self, line: int, column: int) -> int:
        start = self._starts[line - self._first]
        if self._ascii:
            return start + column
        own = self.text[start : self.text.find("\n", start) + 1 or len(self.text)]
        return start + len(own.encode()[:column].decode())

    def place(self, offset: int) -> tuple[int, int]:
        """(line, column) of an offset, from line 1 on, in characters."""
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1]

    def span(self, node: ast.AST) -> Span:
        """The span of a node that has a position."""
        own = cast(ast.stmt, node)
        assert own.end_lineno is not None and own.end_col_offset is not None
        return self.offset(own.lineno, own.col_offset), self.offset(own.end_lineno, own.end_col_offset)

    def source(self, node: ast.AST) -> str:
        """The text of a node, as its author wrote it."""
        return self.text[slice(*self.span(node))]

    def statement(self, node: ast.stmt) -> Span:
        """The span of a statement, with its decorators and the comments at its end that belong to its last suite."""
        start, end = self.span(node)
        if decorators := getattr(node, "decorator_list", ()):
            start = self.text.rindex("@", 0, self.span(decorators[0])[0])
        inner = [suite[0] for suite in suites(node)]
        while inner and self.is_elif(inner[-1]):
            inner = [suite[0] for suite in suites(inner[-1])]
        if not inner or not self.begins_line(self.span(inner[-1])[0]):
            return start, end
        end = self._line_end(end)
        below = end
        while below < len(self.text):
            above, below = below + 1, self._line_end(below + 1)
            line = self.text[above:below]
            margin = len(line) - len(line.lstrip())
            if line.startswith("#", margin) and margin >= inner[-1].col_offset:
                end = below
            elif line.strip():
                break
        return start, end

    def is_elif(self, node: ast.stmt) -> bool:
        return isinstance(node, ast.If) and self.text.startswith("elif", self.span(node)[0])

    def begins_line(self, offset: int) -> bool:
        """Whether only white space stands before `offset` in its line."""
        return self.place(offset)[1] == len(self.margin(offset))

    def _line_end(self, offset: int) -> int:
        found = self.text.find("\n", offset)
        return len(self.text) if found < 0 else found

    def margin(self, offset: int) -> str:
        """The indentation of the line of `offset`."""
        start = self.text.rfind("\n", 0, offset) + 1
        return self.text[start : start + len(self.text[start:]) - len(self.text[start:].lstrip(" \t\f"))]
