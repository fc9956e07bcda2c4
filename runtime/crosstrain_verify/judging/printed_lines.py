"""Printed lines: whether two of them say the same, and which of their numbers differ in every run.

Scripts print how long things took. Two runs of the original compute the same, bit for bit, so a number that differs
between them is no result of training. It is called volatile, and so is the number at the same place in every line with
the same words.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence

from crosstrain.utils.messages import shortened

from crosstrain_verify.judging.tolerance import Tolerance, same
from crosstrain_verify.records.traces import RankTrace, source_line

NUMBER = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?")
# Minutes may differ between one pair of runs and be equal in another, so dates, times of day and durations (`0h 2m 13s`)
# are left out as a whole.
CLOCK = re.compile(
    r"\d{4}-\d{2}-\d{2}|\d+:\d{2}:\d{2}(?:[.,]\d+)?|(?:\b\d+ ?h ?)?\b\d+ ?m(?:in)? ?\d+(?:\.\d+)? ?s\b"
    r"|\bat 0x[0-9a-fA-F]+"
)
SHOWN = 60  # characters of the line that a note shows as an example

Volatile = Mapping[str, frozenset[int]]
"""By the words of a line, the places (from 0) of the numbers that differ in every run."""


def words(line: str) -> str:
    """A line with "#" for each number. Several blanks count as one, because the padding of a column depends on its digits."""
    return " ".join(NUMBER.sub(" # ", _without_clocks(line)).split())


def numbers(line: str) -> list[str]:
    """The numbers of a line, in order, without dates, times of day and durations."""
    return NUMBER.findall(_without_clocks(line))


def volatile(ours: Sequence[str], theirs: Sequence[str]) -> Volatile:
    """The printed numbers that differ between two runs of one script."""
    found: dict[str, frozenset[int]] = {}
    for a, b in aligned(ours, theirs):
        pairs = enumerate(zip(numbers(ours[a]), numbers(theirs[b]), strict=True))
        places = {place for place, (x, y) in pairs if x != y}
        if ours[a] != theirs[b]:
            found[words(ours[a])] = found.get(words(ours[a]), frozenset()) | places
    return found


def about(places: Volatile) -> str:
    """A note for the report, with an example; "" if nothing is volatile."""
    if not places:
        return ""
    example = shortened(next(iter(places)), SHOWN)
    return (
        f"not compared: numbers that differ between two runs of the original, such as times (in {example!r})"
    )


def same_line(
    a: str, b: str, tolerance: Tolerance, steps: int, volatile_places: Volatile | None = None
) -> bool:
    """Whether two lines have the same words, and the same numbers within the tolerance (integers exactly).

    steps: optimizer steps of the run. volatile_places: numbers that are left out.
    """
    if _without_clocks(a) == _without_clocks(b):
        return True
    left_out = (volatile_places or {}).get(words(a))
    if words(a) != words(b) or (not tolerance.epsilon and left_out is None):
        return False
    pairs = enumerate(zip(numbers(a), numbers(b), strict=True))
    return all(
        place in (left_out or ()) or (same_number(x, y, tolerance, steps) if tolerance.epsilon else x == y)
        for place, (x, y) in pairs
    )


def same_number(a: str, b: str, tolerance: Tolerance, steps: int) -> bool:
    """Whether two printed numbers are equal within the tolerance; two integers must be the same text."""
    if _unit(a) == 0 and _unit(b) == 0:
        return a == b
    return same(float(a), float(b), tolerance.printed(steps, float(a), max(_unit(a), _unit(b))))


def aligned(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int]]:
    """Pairs of lines that have the same words, in order."""
    a, b = [words(text) for text in ours], [words(text) for text in theirs]
    if a == b:
        return [(index, index) for index in range(len(a))]
    blocks = difflib.SequenceMatcher(None, a, b, autojunk=False).get_matching_blocks()
    return [(block.a + k, block.b + k) for block in blocks for k in range(block.size)]


def printed_at(run: RankTrace, text: str) -> str:
    """The source line that printed a text, as "printed at FILE:LINE"; "" if it is unknown."""
    if len(run.printed) != len(run.lines) or text not in run.lines:
        return ""
    place = source_line(run.printed[run.lines.index(text)].place)
    return f"printed at {place}" if place else ""


def _without_clocks(line: str) -> str:
    return CLOCK.sub("(clock)", line)


def _unit(number: str) -> float:
    """The value of one unit in the last digit; 0.0 for an integer."""
    mantissa, _, exponent = number.lower().partition("e")
    _, point, digits = mantissa.partition(".")
    if not point and not exponent:
        return 0.0
    return float(10.0 ** (int(exponent or 0) - len(digits)))
