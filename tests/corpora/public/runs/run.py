"""How one public script runs small."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


def _nothing(_: Path) -> None:
    pass


@dataclass(frozen=True)
class Run:
    """``prepare`` is given the folder of the script, in a copy of its repository, and makes the files that it reads.

    libraries: folders of the repository with packages that its users install first.
    """

    args: tuple[str, ...] = ()
    prepare: Callable[[Path], None] = _nothing
    steps: int = 6
    libraries: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
