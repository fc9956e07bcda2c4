"""What an observed run has seen of the script's expressions; without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """An expression of a file. Columns are in UTF-8 bytes."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(frozen=True)
class Observations:
    """What one process has observed.

    files: those of the project that it compiled. numbers: by expression and pass over a loader, the first numbers that the
    expression stood for while the script worked on the first batch of the pass.
    """

    files: list[str]
    numbers: dict[Place, dict[int, list[float]]]
