"""Whether a script may train at all: a test of its bytes.

It takes microseconds, where parsing takes milliseconds and understanding takes seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from crosstrain_migrate.core.reading.frameworks import may_be_imported

_BACKWARD = re.compile(rb"backward\b")
_IMPORTS_BY_NAME = re.compile(rb"(import_module|__import__)\(\s*[^\s\"')]")
_GRADIENT = re.compile(rb"\bautograd\b[^#\n]*\bgrad\b")


def may_train(data: bytes) -> bool:
    """Whether a script may call a backward pass, or a library that does, or import what does by a computed name."""
    return (b"torch" in data and _goes_backward(data)) or may_be_imported(data) or _imports_by_name(data)


def _imports_by_name(data: bytes) -> bool:
    return (b"import_module" in data or b"__import__" in data) and _IMPORTS_BY_NAME.search(data) is not None


def _goes_backward(data: bytes) -> bool:
    """Whether a text has `.backward`, or `autograd` and then `grad` in one line. To search for the bare words first is 20
    times as fast as to search for the patterns."""
    return any(
        _BACKWARD.match(data, place) and _follows_dot(data, place) for place in _places(b"backward", data)
    ) or any(_GRADIENT.match(data, place) for place in _places(b"autograd", data))


def _places(word: bytes, data: bytes) -> Iterator[int]:
    place = data.find(word)
    while place >= 0:
        yield place
        place = data.find(word, place + 1)


def _follows_dot(data: bytes, place: int) -> bool:
    while place and data[place - 1 : place].isspace():
        place -= 1
    return data[place - 1 : place] == b"."
