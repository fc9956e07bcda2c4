"""What an observed run leaves: what stood at each place of the source, and the objects that it was; without torch."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

At = tuple[int, int, int, int]  # line, column (in UTF-8 bytes), end line, end column of an expression


def half(rows: int) -> int:
    """How many rows of a batch stay where the others are replaced by copies of them."""
    return (rows + 1) // 2


@dataclass(frozen=True)
class Place:
    """An expression of a file. parameter: it names a parameter of a function around it, and so makes nothing."""

    file: str
    at: At
    parameter: bool = False


@dataclass(frozen=True)
class Defined:
    """A function or class: `name` is its qualified name in `file` (with its first line), or, without, its public name."""

    name: str
    file: str = ""
    line: int = 0


@dataclass
class SeenObject:
    """An object of the training. made: the numbers of the places that gave it to the script, the first ones.

    role: "loss", "module", "optimizer", "scheduler", "loader", "sampler", "dataset". of: the numbers of the modules whose
    parameters an optimizer has. about: what else is worth knowing, such as how many of its parameters are no module's
    ("loose"),
    or that a module is a part of another one ("part").
    """

    role: str
    kind: Defined
    made: list[int] = field(default_factory=list)
    of: list[int] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Values:
    """A tensor that stood at a place while the first batch of a pass was in hand.

    loader: the object that gave the batch, of `rows` rows. numbers: one for each entry of the first dimension (weighted
    sums of what is in it), where `rows` divides it; a tensor without dimensions is one number.
    """

    place: int
    turn: tuple[int, int]  # the pass, and the how manyth value at this place during the batch
    loader: int
    rows: int
    shape: tuple[int, ...]
    numbers: NDArray[np.float64]


@dataclass
class Observations:
    """Everything that one process has seen.

    objects, code: by place, the numbers of the objects, and the functions and classes, that stood there. methods: own
    functions that were bound, by place, with the number of the object that they were bound to.
    ran: the numbers of the places that were reached. losses: the places of what went backward.
    """

    places: list[Place] = field(default_factory=list)
    objects: list[SeenObject] = field(default_factory=list)
    objects_at: dict[int, list[int]] = field(default_factory=dict)
    code: dict[int, list[Defined]] = field(default_factory=dict)
    methods: dict[int, list[tuple[Defined, int]]] = field(default_factory=dict)
    ran: list[int] = field(default_factory=list)
    values: list[Values] = field(default_factory=list)


def write(file: Path, seen: Observations) -> None:
    """Keep what a rank has seen, for `read`."""
    about = asdict(seen)
    about["values"] = [(one.place, one.turn, one.loader, one.rows, one.shape) for one in seen.values]
    arrays: dict[str, Any] = {str(number): one.numbers for number, one in enumerate(seen.values)}
    np.savez(file, about=np.array(json.dumps(about)), **arrays)


def read(file: Path) -> Observations | None:
    """What a rank has seen; None where it was not observed."""
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
