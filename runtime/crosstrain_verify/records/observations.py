"""What an observed run leaves: which objects, code and tensors each expression of the source stood for; without torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

At = tuple[int, int, int, int]  # line, column (in UTF-8 bytes), end line, end column of an expression


def half(rows: int) -> int:
    """How many rows of a batch are kept when copies of them replace the others."""
    return (rows + 1) // 2


@dataclass(frozen=True)
class Place:
    """An expression of a file. parameter: it names a parameter of an enclosing function, so it creates no object."""

    file: str
    at: At
    parameter: bool = False


@dataclass(frozen=True)
class Defined:
    """A function or class. name: its qualified name in `file`; without a file, its public name. line: its first line."""

    name: str
    file: str = ""
    line: int = 0


@dataclass
class SeenObject:
    """An object of the training.

    Args:
        role: "loss", "module", "optimizer", "scheduler", "loader", "sampler" or "dataset".
        kind: its class.
        made: the numbers of the first places that gave it to the script.
        of: for an optimizer, the numbers of the modules whose parameters it has.
        about: other facts, such as how many of an optimizer's parameters belong to no module ("loose"), or that a module
            is part of another one ("part").
    """

    role: str
    kind: Defined
    made: list[int] = field(default_factory=list)
    of: list[int] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Values:
    """A tensor that an expression had as its value while the script worked on the first batch of a pass.

    Args:
        place: the number of the expression.
        turn: the number of the pass, and of the value among those of this place during the batch.
        loader: the number of the loader that gave the batch.
        rows: the batch's rows.
        numbers: a weighted sum for each entry of the first dimension, if `rows` divides its size; empty otherwise. A
            tensor without dimensions is one number.
    """

    place: int
    turn: tuple[int, int]
    loader: int
    rows: int
    shape: tuple[int, ...]
    numbers: NDArray[np.float64]


@dataclass
class Observations:
    """Everything that one process has observed.

    Args:
        places: the expressions; other fields refer to them by number.
        objects: the objects of the training; other fields refer to them by number.
        objects_at: by place, the numbers of the objects that it had as its value.
        code: by place, the functions and classes that it had as its value.
        methods: by place, the bound methods that the project defines, each with the number of the object it is bound to.
        ran: the numbers of the places that were reached.
        values: the tensors.
    """

    places: list[Place] = field(default_factory=list)
    objects: list[SeenObject] = field(default_factory=list)
    objects_at: dict[int, list[int]] = field(default_factory=dict)
    code: dict[int, list[Defined]] = field(default_factory=dict)
    methods: dict[int, list[tuple[Defined, int]]] = field(default_factory=dict)
    ran: list[int] = field(default_factory=list)
    values: list[Values] = field(default_factory=list)


def write(file: Path, seen: Observations) -> None:
    """Write what a rank has observed to a file that `read` understands."""
    about = asdict(seen)
    about["values"] = [(one.place, one.turn, one.loader, one.rows, one.shape) for one in seen.values]
    arrays: dict[str, Any] = {str(number): one.numbers for number, one in enumerate(seen.values)}
    np.savez(file, about=np.array(json.dumps(about)), **arrays)


def read(file: Path) -> Observations | None:
    """What a rank has observed; None if the file does not exist."""
    if not file.exists():
        return None
    with np.load(file) as kept:
        about: dict[str, Any] = json.loads(str(kept["about"]))
        arrays = [kept[str(number)] for number in range(len(about["values"]))]
    return Observations(
        places=[Place(one["file"], tuple(one["at"]), one["parameter"]) for one in about["places"]],
        objects=[SeenObject(**(one | {"kind": Defined(**one["kind"])})) for one in about["objects"]],
        objects_at={int(place): list(numbers) for place, numbers in about["objects_at"].items()},
        code={int(place): [Defined(**one) for one in found] for place, found in about["code"].items()},
        methods={
            int(place): [(Defined(**one), owner) for one, owner in found]
            for place, found in about["methods"].items()
        },
        ran=about["ran"],
        values=[
            Values(place, tuple(turn), loader, rows, tuple(shape), numbers)
            for (place, turn, loader, rows, shape), numbers in zip(about["values"], arrays, strict=True)
        ],
    )
