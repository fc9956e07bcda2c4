"""What the interpreter remembers, and who read it: after a change only the code that read it is evaluated again.

A *unit* is what is evaluated as a whole: a statement without its suites, a function's defaults, a lambda's body.
Evaluating a unit again gives nothing new unless a cell it read has changed since. So the fixpoint's passes leave the
settled units out, and the results are those of passes over everything in the same order.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Set
from typing import Generic, TypeVar

from .values import Value

ANY = "*"  # heap key of an element whose position is not known
Key = TypeVar("Key")
HeapKey = tuple[ast.AST, object]
Readers = dict[ast.AST, int]  # unit -> the turn in which it read
Unit = tuple[ast.AST | None, int]


class Watch:
    """Which unit is being evaluated, and which units need no evaluation."""

    def __init__(self) -> None:
        self.settled: set[ast.AST] = set()
        self._turns = 0
        self._unit: Unit = (None, 0)

    def enter(self, unit: ast.AST) -> Unit:
        """Starts an evaluation of `unit`; returns what `leave` goes back to. Units may stand inside each other."""
        outer = self._unit
        self._turns += 1
        self._unit = unit, self._turns
        self.settled.add(unit)
        return outer

    def leave(self, outer: Unit) -> None:
        self._unit = outer

    def read(self, readers: Readers) -> None:
        unit, turn = self._unit
        if unit is not None:
            readers[unit] = turn

    def changed(self, readers: Readers) -> None:
        """What `readers` read is no longer so. A unit that is at work and has not read it in this turn yet is fine."""
        current = self._unit
        for unit, turn in readers.items():
            if unit is not current[0] or turn == current[1]:
                self.settled.discard(unit)


class Cell(set[Value]):
    """A set of values that grows, and its readers."""

    __slots__ = ("readers",)

    def __init__(self) -> None:
        super().__init__()
        self.readers: Readers = {}


class Cells(Generic[Key]):
    """Cells by key, made when they are first asked for. Reading one, or looking for it in vain, is noticed."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._cells: dict[Key, Cell] = {}
        self._missed: dict[Key, Readers] = defaultdict(dict)
        self.items = self._cells.items
        self.values = self._cells.values

    def cell(self, key: Key) -> Cell:
        """The cell itself, to add values to."""
        found = self._cells.get(key)
        if found is None:
            found = self._cells[key] = Cell()
            self._made(key)
        return found

    def _made(self, key: Key) -> None:
        if key in self._missed:
            self._watch.changed(self._missed.pop(key))

    def __getitem__(self, key: Key) -> Cell:
        found = self.cell(key)
        self._watch.read(found.readers)
        return found

    def get(self, key: Key, default: Iterable[Value] = ()) -> Set[Value]:
        """What the cell holds; `default` where there is none."""
        found = self._cells.get(key)
        if found is None:
            self._watch.read(self._missed[key])
            return frozenset(default)
        self._watch.read(found.readers)
        return found

    def __contains__(self, key: Key) -> bool:
        if key in self._cells:
            return True
        self._watch.read(self._missed[key])
        return False


class Heap(Cells[HeapKey]):
    """(object, attribute or index) -> values. Knows each object's keys: looking for them among all takes for ever."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._keys: dict[ast.AST, list[HeapKey]] = defaultdict(list)
        self._key_readers: dict[ast.AST, Readers] = defaultdict(dict)

    def _made(self, key: HeapKey) -> None:
        super()._made(key)
        self._keys[key[0]].append(key)
        self._watch.changed(self._key_readers[key[0]])

    def keys_of(self, site: ast.AST) -> list[HeapKey]:
        self._watch.read(self._key_readers[site])
        return self._keys[site]


def key_of(index: ast.expr) -> object:
    """The heap key of `owner[index]`."""
    return index.value if isinstance(index, ast.Constant) else ANY
