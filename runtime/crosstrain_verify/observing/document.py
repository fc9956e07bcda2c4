"""The facts file: JSON with one object, place or file on each line, so that a change can be reviewed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstrain_verify.observing.tensors import TensorFact
from crosstrain_verify.records.observations import Defined, Observations, Place

VERSION = 1


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


def document(
    script: Path,
    run: Run,
    seen: Observations,
    tensors: Mapping[int, TensorFact],
    losses: Sequence[str],
    other: Observations | None = None,
) -> dict[str, Any]:
    """The contents of the facts file, which `migrate --facts` reads.

    losses: the places of backward passes, as "file:line:function". other: what rank 1 has observed.
    """
    files = sorted({place.file for place in seen.places})
    told = _Told(script, seen, tensors)
    return {
        "version": VERSION,
        "script": script.name,
        "run": {
            "arguments": list(run.arguments),
            "processes": run.processes,
            "steps": run.steps,
            "seconds": round(run.seconds, 1),
            "data": run.data,
            "notes": list(run.notes),
        },
        "files": {name: _checksum(script.parent / _file(name)) for name in _whole(files)},
        "objects": [told.object(number) for number in range(len(seen.objects))],
        "places": told.places(),
        "ran": told.lines(seen),
        **({"ran on rank 0 alone": told.lines(seen, other)} if other is not None else {}),
        "losses": sorted(set(losses)),
    }


def text(facts: Mapping[str, Any]) -> str:
    """The text of the facts file: every object, place and file has its own line."""
    parts = []
    for name, value in facts.items():
        if name in {"objects", "places"}:
            lines = ",\n".join(f"  {json.dumps(one)}" for one in value)
            parts.append(f'"{name}": [\n{lines}\n ]' if value else f'"{name}": []')
        elif isinstance(value, dict) and name != "run":
            lines = ",\n".join(f"  {json.dumps(key)}: {json.dumps(one)}" for key, one in value.items())
            parts.append(f'"{name}": {{\n{lines}\n }}' if value else f'"{name}": {{}}')
        else:
            parts.append(f'"{name}": {json.dumps(value)}')
    return "{\n " + ",\n ".join(parts) + "\n}\n"


class _Told:
    """Observations in the form of the facts file."""

    def __init__(self, script: Path, seen: Observations, tensors: Mapping[int, TensorFact]) -> None:
        self._script = script
        self._seen = seen
        self._tensors = tensors

    def object(self, number: int) -> dict[str, Any]:
        one = self._seen.objects[number]
        made = {"made": [self._at(self._seen.places[place]) for place in one.made]} if one.made else {}
        more = ({"of": one.of} if one.of else {}) | one.about
        return {"role": one.role, "class": _defined(one.kind), **made, **more}

    def places(self) -> list[dict[str, Any]]:
        """The places about which something is known, by file and position."""
        numbers = {*self._seen.objects_at, *self._seen.code, *self._seen.methods, *self._tensors}
        listed = sorted(
            numbers, key=lambda number: (self._seen.places[number].file, self._seen.places[number].at)
        )
        told = ({"at": self._at(self._seen.places[number]), **self._what(number)} for number in listed)
        return [one for one in told if len(one) > 1]

    def _what(self, number: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if stood := self._seen.objects_at.get(number):
            found["objects"] = stood
        if code := self._seen.code.get(number):
            found["code"] = [_defined(one) for one in code]
        if methods := self._seen.methods.get(number):
            found["methods"] = [{"of": owner, **_defined(one)} for one, owner in methods]
        fact = self._tensors.get(number)
        if fact is not None and fact.kind:
            shape = {"shape": list(fact.shape)} if fact.shape else {}
            each = {"each": fact.each} if fact.each > 1 else {}
            alone = {"alone": True} if fact.alone else {}
            found["tensor"] = {"is": fact.kind, "loader": fact.loader, **alone, **each, **shape}
        return found

    @staticmethod
    def lines(seen: Observations, other: Observations | None = None) -> dict[str, list[list[int]]]:
        """By file, the ranges of lines at which something ran. Lines between two ranges are no code, or did not run.

        other: leave out the lines at which something ran there, too.
        """
        elsewhere = {_line(other, number) for number in other.ran} if other is not None else set()
        by_file: dict[str, set[int]] = {}
        for file, line in {_line(seen, number) for number in seen.ran} - elsewhere:
            by_file.setdefault(file, set()).add(line)
        return {file: _ranges(sorted(lines)) for file, lines in sorted(by_file.items())}

    @staticmethod
    def _at(place: Place) -> list[Any]:
        return [place.file, *place.at]


def _line(seen: Observations, number: int) -> tuple[str, int]:
    place = seen.places[number]
    return place.file, place.at[0]


def _defined(one: Defined) -> dict[str, Any]:
    where = {"file": one.file} if one.file else {}
    return {"name": one.name, **where, **({"line": one.line} if one.line else {})}


def _ranges(lines: Sequence[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for line in lines:
        if found and found[-1][1] == line - 1:
            found[-1][1] = line
        else:
            found.append([line, line])
    return found


def _whole(names: Sequence[str]) -> list[str]:
    """The files of these names; the cells of a notebook are one file."""
    return sorted({_file(name) for name in names})


def _file(name: str) -> str:
    return name.rpartition(":cell ")[0] or name


def _checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
