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

from crosstrain_migrate.syntax.nodes import place_of

from .values import NOTHING, Value, Values

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
        self.unit: Unit = (None, 0)

    def enter(self, unit: ast.AST) -> Unit:
        """Starts an evaluation of `unit`; returns what `leave` goes back to. Units may stand inside each other."""
        outer = self.unit
        self._turns += 1
        self.unit = unit, self._turns
        self.settled.add(unit)
        return outer

    def leave(self, outer: Unit) -> None:
        self.unit = outer

    def read(self, readers: Readers) -> None:
        unit, turn = self.unit
        if unit is not None:
            readers[unit] = turn

    def changed(self, readers: Readers) -> None:
        """What `readers` read is no longer so. A unit that is at work and has not read it in this turn yet is fine."""
        current = self.unit
        for unit, turn in readers.items():
            if unit is not current[0] or turn == current[1]:
                self.settled.discard(unit)


class Cell(set[Value]):
    """A set of values that grows, and its readers. Who changes it forgets what `as_values` has remembered."""

    __slots__ = ("readers", "remembered")

    def __init__(self) -> None:
        self.readers: Readers = {}
        self.remembered: Values | None = None

    def as_values(self) -> Values:
        found = self.remembered
        if found is None:
            found = self.remembered = frozenset(self)
        return found


class Cells(Generic[Key]):
    """Cells by key, made when they are first asked for. Reading one, or looking for it in vain, is noticed."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._cells: dict[Key, Cell] = {}
        self._missed: dict[Key, Readers] = defaultdict(dict)
        self.items = self._cells.items
        self.values = self._cells.values
        self.known = self._cells.get

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
        unit, turn = self._watch.unit  # as `Watch.read` does, which would take half the time of this
        if unit is not None:
            found.readers[unit] = turn
        return found

    def get(self, key: Key, default: Iterable[Value] = ()) -> Set[Value]:
        """What the cell holds; `default` where there is none."""
        found = self._cells.get(key)
        if found is None:
            self._watch.read(self._missed[key])
            return frozenset(default)
        self._watch.read(found.readers)
        return found

    def values_of(self, key: Key) -> Values:
        """What the cell holds now, and goes on to hold."""
        found = self._cells.get(key)
        if found is None:
            self._watch.read(self._missed[key])
            return NOTHING
        unit, turn = self._watch.unit
        if unit is not None:
            found.readers[unit] = turn
        return found.as_values()

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
        self._joined: dict[
            ast.AST, ast.AST
        ] = {}  # objects that are not told apart -> the one that stands for them

    def _made(self, key: HeapKey) -> None:
        super()._made(key)
        self._keys[key[0]].append(key)
        self._watch.changed(self._key_readers[key[0]])

    def cell(self, key: HeapKey) -> Cell:
        return super().cell(self._own(key))

    def get(self, key: HeapKey, default: Iterable[Value] = ()) -> Set[Value]:
        return super().get(self._own(key), default)

    def __contains__(self, key: HeapKey) -> bool:
        return super().__contains__(self._own(key))

    def keys_of(self, site: ast.AST) -> list[HeapKey]:
        site = self.stands_for(site)
        self._watch.read(self._key_readers[site])
        return self._keys[site]

    def stands_for(self, site: ast.AST) -> ast.AST:
        """The object that stands for the one made at `site`: itself, unless it was joined with others."""
        return self._joined.get(site, site)

    def _own(self, key: HeapKey) -> HeapKey:
        return (self._joined[key[0]], ANY) if key[0] in self._joined else key

    def join(self, sites: Iterable[ast.AST]) -> ast.AST:
        """From now on these objects, and those joined before, are one: what any of them holds, all may hold."""
        new = [site for site in sites if site not in self._joined]
        one = next(iter(self._joined.values()), None) or min(new, key=place_of)
        self._joined.update(dict.fromkeys(new, one))
        for key in [key for key in self._missed if key[0] in self._joined]:
            self._watch.changed(self._missed.pop(key))
        for site in new:
            keys = self._keys.pop(site, [])
            cells = [self._cells.pop(key) for key in keys]
            held = {value for cell in cells for value in cell}
            if not held <= self.cell((one, ANY)):
                self.cell((one, ANY)).update(held)
                self.cell((one, ANY)).remembered = None
                self._watch.changed(self.cell((one, ANY)).readers)
            for readers in (*(cell.readers for cell in cells), self._key_readers.pop(site, {})):
                self._watch.changed(readers)
        return one


def key_of(index: ast.expr) -> object:
    """The heap key of `owner[index]`."""
    return index.value if isinstance(index, ast.Constant) else ANY
