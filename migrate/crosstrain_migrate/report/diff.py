"""Unified diffs as `git apply` and `patch -p1` take them: bytes, so that encodings and line ends survive."""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crosstrain_migrate.outcome import Migrated, Part
from crosstrain_migrate.results import Change

_CONTEXT = 3
# Above this, difflib's shortcut for frequent lines is worth a slightly longer diff.
_LARGE = 5_000
_NEEDS_QUOTES = re.compile(r'[\x00-\x1f\x7f"\\\udc80-\udcff]')
_ESCAPES = {"\a": "a", "\b": "b", "\t": "t", "\n": "n", "\v": "v", "\f": "f", "\r": "r", '"': '"', "\\": "\\"}


@dataclass(frozen=True, slots=True)
class Line:
    """One line with its line end. `sign` is " ", "-" or "+"; 1-based numbers, None where it is not."""

    sign: str
    text: bytes
    old: int | None
    new: int | None


@dataclass(frozen=True, slots=True)
class Hunk:
    """Neighbouring changes with their context, and the changes' rule codes and reasons."""

    lines: tuple[Line, ...]
    changes: tuple[Change, ...]

    @property
    def rules(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(change.rule for change in self.changes))

    def blocks(self) -> Iterator[tuple[Sequence[Line], Sequence[Line]]]:
        """Old lines beside new ones: unchanged lines are the same list twice, removed lines stand beside what replaces them."""
        for unchanged, group in itertools.groupby(self.lines, lambda line: line.sign == " "):
            lines = list(group)
            if unchanged:
                yield lines, lines
            else:
                yield [one for one in lines if one.sign == "-"], [one for one in lines if one.sign == "+"]

    @property
    def header(self) -> str:
        old = [line.old for line in self.lines if line.old is not None]
        new = [line.new for line in self.lines if line.new is not None]
        return f"@@ -{_span(old)} +{_span(new)} @@" + "".join(f" {rule}" for rule in self.rules)


def hunks(before: bytes, after: bytes, changes: Sequence[Change] = ()) -> Iterator[Hunk]:
    """The difference in hunks; each change goes to the hunk its line of `before` lies in, or the nearest."""
    old, new = _split(before), _split(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=len(old) > _LARGE)
    groups = [tuple(_lines(old, new, group)) for group in matcher.get_grouped_opcodes(_CONTEXT)]
    groups = [group for group in groups if group]
    given: list[list[Change]] = [[] for _ in groups]
    for change in sorted(changes, key=lambda one: (one.line, one.rule)):
        if groups:
            nearest = min(range(len(groups)), key=lambda index: _distance(groups[index], change.line))
            given[nearest].append(change)
    for group, own in zip(groups, given, strict=True):
        yield Hunk(group, tuple(own))


def unified(name: str, before: bytes, after: bytes, changes: Sequence[Change] = ()) -> bytes:
    """One file's patch; empty when nothing differs. `name` is relative to where the patch will be applied."""
    parts: list[bytes] = []
    for hunk in hunks(before, after, changes):
        parts.append(hunk.header.encode() + b"\n")
        for line in hunk.lines:
            parts.append(line.sign.encode() + line.text)
            if not line.text.endswith(b"\n"):
                parts.append(b"\n\\ No newline at end of file\n")
    if not parts:
        return b""
    old, new = _patch_name("a", name), _patch_name("b", name)
    # GNU patch takes a name with blanks up to a tab.
    tab = b"\t" if b" " in old else b""
    return b"".join([b"diff --git ", old, b" ", new, b"\n--- ", old, tab, b"\n+++ ", new, tab, b"\n", *parts])


def patch(file: Migrated) -> bytes:
    """A changed file's diff: to be applied for a script, and to be read for a notebook, cell by cell.

    A notebook is JSON, so its cells' lines are no patch of it. Their hunks have no file header and a line for humans
    where `git apply` looks for "@@ -": it passes them over and applies the rest.
    """
    if file.source.is_cells:
        return _cells(file)
    return unified(file.name, file.source.data, file.after, file.result.changes)


def readable(file: Migrated) -> str:
    """The same as text: decoded, with "\\n" line ends."""
    if file.source.is_cells:
        return _cells(file).decode(errors="surrogateescape")
    before, after = (text.encode(errors="replace") for text in (file.source.text, file.result.after))
    return unified(file.name, before, after, file.result.changes).decode(errors="surrogateescape")


def _cells(file: Migrated) -> bytes:
    found: list[bytes] = []
    for part in file.parts():
        for hunk in part_hunks(part):
            place = os.fsencode(f"{file.name}, {part.piece.label},")
            found.append(hunk.header.encode().replace(b"@@ ", b"@@ " + place + b" ", 1) + b"\n")
            found += [line.sign.encode() + line.text.removesuffix(b"\n") + b"\n" for line in hunk.lines]
    return b"".join(found)


def part_hunks(part: Part) -> Iterator[Hunk]:
    """The hunks of one part of a file."""
    before, after = (text.encode(errors="replace") for text in (part.piece.before, part.piece.after))
    return hunks(before, after, part.changes)


def _patch_name(side: str, name: str) -> bytes:
    """`side/name`, quoted as git quotes when it holds characters that would break the header."""
    path = f"{side}/{name.lstrip('/')}"
    if not _NEEDS_QUOTES.search(path):
        return os.fsencode(path)
    quoted = "".join(
        "\\" + _ESCAPES[char]
        if char in _ESCAPES
        else "".join(f"\\{byte:03o}" for byte in os.fsencode(char))
        if _NEEDS_QUOTES.match(char)
        else char
        for char in path
    )
    return f'"{quoted}"'.encode()


def _split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    last = lines.pop()
    return [line + b"\n" for line in lines] + ([last] if last else [])


def _lines(
    old: list[bytes], new: list[bytes], group: Sequence[tuple[str, int, int, int, int]]
) -> Iterator[Line]:
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            yield from (Line(" ", old[i], i + 1, i - i1 + j1 + 1) for i in range(i1, i2))
            continue
        yield from (Line("-", old[i], i + 1, None) for i in range(i1, i2))
        yield from (Line("+", new[j], None, j + 1) for j in range(j1, j2))


def _distance(group: Sequence[Line], line: int) -> int:
    """0 beside a removed line or in place of one; otherwise how far the hunk's changed lines are."""
    places: list[int] = []
    last = 0
    for one in group:
        if one.sign != "+":
            last = one.old or last
        if one.sign == "-":
            places.append(last)
        elif one.sign == "+":
            places += [last, last + 1]
    return min(abs(line - place) for place in places)


def _span(numbers: list[int]) -> str:
    # An empty side is written with the line before it, which is 0 in an empty file.
    return f"{numbers[0]},{len(numbers)}" if numbers else "0,0"
