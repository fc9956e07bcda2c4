"""Where the values of a JSON document lie in its text, so that one can be replaced and all else stays as it is.

The text must be valid JSON: `json.loads` has read it before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from json import JSONDecoder

Span = tuple[int, int]

_BLANK = re.compile(r"[ \t\n\r]*")
_DECODER = JSONDecoder(strict=False)


def members(text: str, start: int) -> dict[str, Span]:
    """The values of the object that begins at `start`, by key; of a repeated key the last, as `json` reads it."""
    found: dict[str, Span] = {}
    place = _skip(text, start + 1)
    while text[place] != "}":
        key, place = _DECODER.raw_decode(text, place)
        value = _skip(text, _skip(text, place) + 1)  # behind the colon
        _, end = _DECODER.raw_decode(text, value)
        found[key] = (value, end)
        place = _next(text, end)
    return found


def items(text: str, start: int) -> list[Span]:
    """The values of the array that begins at `start`."""
    return list(_items(text, start))


def _items(text: str, start: int) -> Iterator[Span]:
    place = _skip(text, start + 1)
    while text[place] != "]":
        _, end = _DECODER.raw_decode(text, place)
        yield place, end
        place = _next(text, end)


def root(text: str) -> int:
    """Where the document's value begins."""
    return _skip(text, 0)


def _next(text: str, end: int) -> int:
    place = _skip(text, end)
    return _skip(text, place + 1) if text[place] == "," else place


def _skip(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    assert found is not None
    return found.end()


def replaced(text: str, pieces: dict[Span, str]) -> str:
    """`text` with each span replaced by its piece."""
    parts: list[str] = []
    place = 0
    for (start, end), piece in sorted(pieces.items()):
        parts += [text[place:start], piece]
        place = end
    return "".join([*parts, text[place:]])
