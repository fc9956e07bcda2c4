"""The table of planted mistakes, in `table/*.toml`: each is one that a tired engineer could make and a user would notice."""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

REPOSITORY = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("table")


class Stale(Exception):
    """The code has changed, and a mistake can no longer be planted; the message names it."""


@dataclass(frozen=True)
class Planted:
    """A mistake: `text`, which stands once in `file`, becomes `wrong`.

    what: what a user would see. near: the files of tests that ought to notice, or their ids, nearest first.
    """

    id: str
    file: str
    what: str
    text: str
    wrong: str
    near: tuple[str, ...]

    @property
    def room(self) -> str:
        return self.id.partition("/")[0]

    def applied(self, source: str) -> str:
        """The source with the mistake; raises `Stale` where its text does not stand there once."""
        if (times := source.count(self.text)) != 1:
            raise Stale(f"{self.id}: its text is {times} times in {self.file}: bring the table up to date")
        return source.replace(self.text, self.wrong)


def read_table() -> list[Planted]:
    """Every planted mistake, file by file."""
    tables = [tomllib.loads(file.read_text(encoding="utf-8")) for file in sorted(TABLE.glob("*.toml"))]
    return [Planted(**{**one, "near": tuple(one["near"])}) for table in tables for one in table["planted"]]


def chosen(planted: Iterable[Planted], only: Iterable[str]) -> list[Planted]:
    """Those of these ids or rooms; all where none is named. Raises ValueError for a name that is neither."""
    every = list(planted)
    names = list(only)
    if unknown := sorted(set(names) - {one.id for one in every} - {one.room for one in every}):
        rooms = ", ".join(dict.fromkeys(one.room for one in every))
        raise ValueError(f"no mistake and no room is called {', '.join(unknown)}; the rooms are {rooms}")
    return [one for one in every if not names or one.id in names or one.room in names]
