"""Cases drawn at random: a script and transformations, applied one after the other. A seed draws the same again."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.corpora.variations import families  # noqa: F401  # registers them
from tests.corpora.variations.registry import VARIATIONS
from tests.corpora.variations.script import Project
from tests.golden import cases

ENTRY = "train.py"
MOST = 4  # transformations of a case; two of five cases have one


@dataclass(frozen=True)
class Case:
    """A varied script. applied: the transformations that found something to change, in order."""

    seed: int
    number: int
    base: cases.Case
    applied: tuple[str, ...]
    project: Project


def golden() -> list[cases.Case]:
    """The scripts that are varied: those of the golden corpus that are converted."""
    return [case for case in cases.cases() if case.expect == "converted"]


def as_it_is(base: cases.Case) -> Project:
    return Project(ENTRY, {ENTRY: base.source.text})


def drawn(bases: Sequence[cases.Case], seed: int, number: int) -> Case:
    """Case `number` of a seed: drawn anew until a transformation applies."""
    rng = Random(f"{seed}/{number}")
    while True:
        base = rng.choice(bases)
        count = 1 if rng.random() < 0.4 else rng.randint(2, MOST)
        names = rng.sample(sorted(VARIATIONS), min(count * 2, len(VARIATIONS)))
        case = varied(base, names, seed, number, count)
        if case.applied:
            return case


def varied(base: cases.Case, names: Sequence[str], seed: int, number: int, most: int | None = None) -> Case:
    """A script with transformations applied, as far as they apply; `most` of them."""
    project, applied = as_it_is(base), []
    for name in names:
        if most is not None and len(applied) == most:
            break
        # Its choices do not depend on what was applied before, so that a shrunk case is a part of the whole one.
        made = VARIATIONS[name].apply(project, Random(f"{seed}/{number}/{name}"))
        if made is not None:
            project = made
            applied.append(name)
    return Case(seed, number, base, tuple(applied), project)


def shrunk(case: Case, fails: Callable[[Case], bool]) -> Case:
    """The case with as few transformations as still fail: none of them can be left out."""
    smallest = case
    for name in case.applied:
        fewer = [one for one in smallest.applied if one != name]
        if not fewer:
            break
        tried = varied(case.base, fewer, case.seed, case.number)
        if tried.applied and fails(tried):
            smallest = tried
    return smallest
