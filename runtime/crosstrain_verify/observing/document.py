"""The facts file: JSON with one expression or file on each line, so that a change can be reviewed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from crosstrain_verify.records.observations import Observations, Place

VERSION = 1
CLOSE = 1e-3  # relative error up to which two numbers are taken for the same


@dataclass(frozen=True)
class Run:
    """What was run, for the reader of the file.

    processes: how many ran the script. steps: optimizer steps that were made. data: "real" or "synthetic". notes: what the
    run did differently from an ordinary one.
    """

    arguments: tuple[str, ...]
    processes: int
    steps: int
    seconds: float
    data: str
    notes: tuple[str, ...]


def kinds(seen: Observations, doubled: Observations | None) -> dict[Place, str]:
    """The expressions that were a mean over the rows of each batch ("mean"), and those that were a sum ("sum").

    doubled: of the run whose batches had every row twice; None where it did not end.
    """
    found = {}
    for place, passes in seen.numbers.items():
        twice = doubled.numbers.get(place, {}) if doubled is not None else {}
        told = {
            _kind(a, b)
            for number, ours in passes.items()
            for a, b in zip(ours, twice.get(number, ()), strict=False)
        } - {""}
        if len(told) == 1:
            found[place] = told.pop()
    return found


def _kind(once: float, twice: float) -> str:
    """What a number is: a mean stays the same when every row is there twice, and a sum doubles; "" for anything else."""
    allowed = CLOSE * max(abs(once), abs(twice))
    if not 0 < allowed < float("inf"):
        return ""
    if abs(once - twice) <= allowed:
        return "mean"
    return "sum" if abs(2 * once - twice) <= allowed else ""


def document(script: Path, run: Run, files: Iterable[str], kinds: Mapping[Place, str]) -> dict[str, Any]:
    """The contents of the facts file, which `migrate --facts` reads. files: those of the project that ran."""
    return {
        "version": VERSION,
        "script": script.name,
        "run": asdict(run) | {"seconds": round(run.seconds, 1)},
        "files": {name: _checksum(script.parent / name) for name in sorted(set(map(_file, files)))},
        "places": [{"at": place, "tensor": {"is": kinds[place]}} for place in sorted(kinds)],
    }


def text(facts: Mapping[str, Any]) -> str:
    """The text of the facts file: every expression and file has its own line."""
    parts = [f'"{name}": {json.dumps(facts[name])}' for name in ("version", "script", "run")]
    files = (f"{json.dumps(name)}: {json.dumps(checksum)}" for name, checksum in facts["files"].items())
    parts.append('"files": ' + _lines("{", files, "}"))
    parts.append('"places": ' + _lines("[", map(json.dumps, facts["places"]), "]"))
    return "{\n " + ",\n ".join(parts) + "\n}\n"


def _lines(opening: str, items: Iterable[str], closing: str) -> str:
    shown = ",\n  ".join(items)
    return f"{opening}\n  {shown}\n {closing}" if shown else opening + closing


def _file(name: str) -> str:
    """The file of this name; the cells of a notebook are one file."""
    return name.rpartition(":cell ")[0] or name


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
