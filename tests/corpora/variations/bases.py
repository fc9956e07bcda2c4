"""The scripts that are varied: those of the golden corpus."""

from __future__ import annotations

from dataclasses import dataclass

from tests.corpora.variations.script import Project
from tests.golden.cases import cases

ENTRY = "train.py"


@dataclass(frozen=True)
class Base:
    """A script before it is varied.

    args, verdict: with what it is run, and what `verify` must say of its conversion on two processes.
    """

    name: str
    project: Project
    args: tuple[str, ...] = ()
    verdict: str = ""
    distributed: bool = False


def golden() -> list[Base]:
    """The cases of one file that are converted."""
    return [
        Base(
            case.name,
            Project(ENTRY, {ENTRY: case.source.text}),
            case.args,
            case.two_processes,
            case.distributed,
        )
        for case in cases()
        if case.expect == "converted"
    ]
