"""The scripts that are varied: those of the golden corpus and, from a folder of checkouts, the plain public ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from tests.corpora.variations.script import Project
from tests.golden.cases import cases

PUBLIC = Path(__file__).parent.parent / "public" / "scripts.json"
ENTRY = "train.py"


@dataclass(frozen=True)
class Base:
    """A script before it is varied.

    folder: the project around it, None if it stands alone. args, verdict: with what it is run, and what `verify` must say
    of its conversion on two processes; verdict is "" where it is not run.
    """

    name: str
    project: Project
    folder: Path | None = None
    args: tuple[str, ...] = ()
    verdict: str = ""
    distributed: bool = False


def golden() -> list[Base]:
    """The cases of one file that are converted."""
    return [
        Base(
            case.name,
            Project(ENTRY, {ENTRY: case.source.text}),
            None,
            case.args,
            case.two_processes,
            case.distributed,
        )
        for case in cases()
        if case.expect == "converted"
    ]


def public(checkouts: Path) -> list[Base]:
    """The plain scripts of `tests/corpora/public` that an expert converts, of repositories that are there."""
    found = []
    for script in json.loads(PUBLIC.read_text(encoding="utf-8"))["scripts"]:
        folder = checkouts / script["repo"].replace("/", "+")
        path = folder / script["script"]
        if (
            script["distributed"]
            or script["expected"] != "convert"
            or path.suffix != ".py"
            or not path.is_file()
        ):
            continue
        text = path.read_text(encoding="utf-8")
        found.append(Base(script["id"], Project(path.name, {path.name: text}), path.parent))
    return found
