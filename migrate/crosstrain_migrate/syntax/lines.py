"""Line numbers of a text as those of another that was made of it."""

from __future__ import annotations

import difflib


class Lines:
    """Translates line numbers of a later text into those of the original."""

    def __init__(self, before: str, after: str) -> None:
        old, new = before.split("\n"), after.split("\n")
        self._old: list[int] = []
        for tag, i1, i2, j1, j2 in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
            for j in range(j1, j2):
                offset = j - j1
                self._old.append(i1 + offset if tag == "equal" else min(i1 + offset, max(i2 - 1, i1)))
        self._last = len(old)

    def __call__(self, line: int) -> int:
        known = 1 <= line <= len(self._old)
        return min(self._old[line - 1] + 1 if known else line, self._last)
