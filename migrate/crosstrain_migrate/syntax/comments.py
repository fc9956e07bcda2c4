"""The comments of a piece of code, and its lines that no indentation may change: what a parser does not keep."""

from __future__ import annotations

import re
from collections import Counter

# A string or a comment. (A string inside an f-string's braces that has the f-string's own quotes is two strings here.)
_PIECE = re.compile(
    r"('''|\"\"\")(?:\\.|(?!\1).)*\1|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|(?P<comment>#[^\n]*)",
    re.DOTALL,
)


def comments(code: str) -> list[str]:
    """The comments in `code`, with their `#`."""
    if "#" not in code:
        return []
    return [found["comment"] for found in _PIECE.finditer(code) if found["comment"]]


def lost_comments(before: str, after: str) -> list[str]:
    """The comments of `before` that are not in `after`."""
    lost = Counter(comments(before))
    lost.subtract(comments(after))
    return [one for one in dict.fromkeys(comments(before)) for _ in range(lost[one])]


def blanked(code: str) -> str:
    """`code` with spaces for comments and for what its strings hold: brackets and commas are those of the code."""
    return _PIECE.sub(_blank, code)


def _blank(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0]) if found["comment"] else re.sub(r"[^\n]", "_", found[0])


def indented(code: str, margin: str, more: str) -> str:
    """`code`, whose lines begin with `margin`, further right by `more`. What continues a string or stands behind a
    backslash stays, and so do lines that begin further left."""
    lines = code.split("\n")
    fixed: set[int] = set()
    if "\n" in code:
        for found in _PIECE.finditer(code):
            if inside := found[0].count("\n"):
                first = code.count("\n", 0, found.start()) + 1
                fixed.update(range(first, first + inside))
        fixed.update(number for number, line in enumerate(lines[:-1], 1) if line.endswith("\\"))
    return "\n".join(
        margin + more + line[len(margin) :]
        if line and line.startswith(margin) and number not in fixed
        else line
        for number, line in enumerate(lines)
    )
