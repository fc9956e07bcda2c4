"""What the interpreter remembers, and who read it: after a change, only the code that read it is evaluated again.

A *unit* is evaluated as a whole: a statement without its suites, a function's defaults, a lambda's body. Evaluating a
unit again gives nothing new unless a cell that it read has changed since. So the fixpoint's passes skip the settled
units, and give the same results as passes over everything in the same order.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable
from typing import Generic, TypeVar

from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.scopes import ScopeTable

from .values import Value, Values

ANY = "*"  # heap key of an element whose position is not known
MAX_COPIES = 100  # of containers; training scripts have some ten
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
        """Starts an evaluation of `unit`; returns what `leave` goes back to. Units may be nested."""
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
        """Unsettles those who have read what has changed: not the current unit, if it has not read it in this turn."""
        current = self.unit
        for unit, turn in readers.items():
            if unit is not current[0] or turn == current[1]:
                self.settled.discard(unit)


class Cell(set[Value]):
    """A set of values that grows, and its readers. Whoever changes it must reset `remembered`."""

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
    """Cells by key, made when they are first asked for. Each read is recorded, also that of a missing cell."""

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

    def get(self, key: Key, default: Iterable[Value] = ()) -> Values:
        """What the cell holds now, as a set that does not grow; `default` where there is no cell."""
        found = self._cells.get(key)
        if found is None:
            self._watch.read(self._missed[key])
            return frozenset(default)
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
    """(object, attribute or index) -> values. Keeps each object's keys, because a search among all of them is slow."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(watch)
        self._keys: dict[ast.AST, list[HeapKey]] = defaultdict(list)
        self._key_readers: dict[ast.AST, Readers] = defaultdict(dict)
        # Objects that are not told apart -> the one that stands for them.
        self._joined: dict[ast.AST, ast.AST] = {}

    def _made(self, key: HeapKey) -> None:
        super()._made(key)
        self._keys[key[0]].append(key)
        self._watch.changed(self._key_readers[key[0]])

    def cell(self, key: HeapKey) -> Cell:
        return super().cell(self._own(key))

    def get(self, key: HeapKey, default: Iterable[Value] = ()) -> Values:
        return super().get(self._own(key), default)

    def __contains__(self, key: HeapKey) -> bool:
        return super().__contains__(self._own(key))

    def keys_of(self, site: ast.AST) -> list[HeapKey]:
        site = self.stands_for(site)
        self._watch.read(self._key_readers[site])
        return self._keys[site]

    def stands_for(self, site: ast.AST) -> ast.AST:
        """The object that stands for the one made at `site`: the same, unless it was joined with others."""
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
            cells = [self._cells.pop(key) for key in self._keys.pop(site, [])]
            held = set().union(*cells)
            joint = self.cell((one, ANY))
            if not held <= joint:
                joint.update(held)
                joint.remembered = None
                self._watch.changed(joint.readers)
            for readers in (*(cell.readers for cell in cells), self._key_readers.pop(site, {})):
                self._watch.changed(readers)
        return one


def key_of(index: ast.expr) -> object:
    """The heap key of `owner[index]`."""
    return index.value if isinstance(index, ast.Constant) else ANY


class Copies:
    """Containers that every call of a function makes anew: a stand-in for the place that makes them, for each call."""

    def __init__(self) -> None:
        self._sites: dict[tuple[ast.AST, ast.AST], ast.AST] = {}
        # A recursive function would make copies of copies for ever.
        self._originals: dict[ast.AST, ast.AST] = {}

    def site(self, call: ast.Call, made: ast.AST, table: ScopeTable) -> ast.AST | None:
        """The stand-in for `made` in one call; None in a program that has too many to tell them apart."""
        made = self._originals.get(made, made)
        found = self._sites.get((call, made))
        if found is None and len(self._sites) >= MAX_COPIES:
            return None
        if found is None:
            found = self._sites[call, made] = ast.copy_location(_empty_like(made), call)
            self._originals[found] = made
            table.parents[found] = call  # it lives as long as what the call is part of
            table.of_node[found] = table.of_node[call]
        return found


def _empty_like(made: ast.AST) -> ast.expr:
    if isinstance(made, ast.Dict | ast.DictComp):
        return ast.Dict([], [])
    if isinstance(made, ast.List | ast.ListComp):
        return ast.List([], ast.Load())
    return ast.Tuple([], ast.Load())
