"""What must hold of any script whatever: that of `tests.corpora.everything`, plus writing the result down."""

from __future__ import annotations

import ast
from pathlib import Path

from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.files.sources import Unusable

from tests.corpora.everything import judge

_PATH = Path("fuzzed.py")


def examine(text: str) -> dict[str, str]:
    """The oracles that `text` violates, with the evidence; also for texts that do not parse."""
    try:
        source = decode(_PATH, text.encode())
    except Unusable:
        return {}
    try:
        state, wrong = judge(_PATH, source.text)
    except (RecursionError, MemoryError):
        return {}
    if state == "unusable" and _parses(source.text):
        wrong["called unusable although Python parses it"] = text
    return wrong


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except (SyntaxError, ValueError):
        return False
    return True
