"""Whether what a loop reads gives each process a part of its own: followed by names, through functions and modules."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from .reach import Reach, Unit

PREPARED, UNPREPARED, OWN_SAMPLER, UNKNOWN = "prepared", "unprepared", "own sampler", "unknown"
PREPARES = frozenset({"prepare", "prepare_data_loader", "skip_first_batches"})
RANKS = frozenset({"get_rank", "process_index"})


def last_name(node: ast.AST) -> str:
    """The last part of a dotted name; of a subscript the name of what is indexed."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return last_name(node.value) if isinstance(node, ast.Subscript | ast.Starred) else ""


def prepares(value: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and last_name(node.func) in PREPARES for node in ast.walk(value))


def bound(unit: Unit, name: str) -> Iterator[ast.expr]:
    """The values that a unit's own code binds to a name, an attribute or an entry of that name; what loops go over, too."""
    for node in unit.nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value) | ast.For(target=target, iter=value):
                targets = [target]
            case ast.NamedExpr(target=target, value=value):
                targets = [target]
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                targets = [target]
            case _:
                continue
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            places = [number for number, one in enumerate(parts) if last_name(one) == name]
            whole = isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(parts)
            for place in places:
                yield value.elts[place] if whole and parts != [target] else value  # type: ignore[attr-defined]


def callers(units: Iterable[Unit], unit: Unit) -> Iterator[tuple[Unit, ast.Call]]:
    """Where a unit is called, or handed to something that calls it; a constructor by its class's name."""
    name = unit.owner.name if unit.owner and unit.name == "__init__" else unit.name
    for caller in units if unit.parent is not None else ():
        if caller is not unit and name in caller.mentioned:
            for node in caller.nodes:
                if isinstance(node, ast.Call) and name in map(last_name, (node.func, *node.args)):
                    yield caller, node


class Preparation:
    """Follows an expression to what it is made of."""

    def __init__(self, reach: Reach) -> None:
        self._reach, self._units = reach, list(reach.active)
        self._names: dict[tuple[str, Unit], str] = {}  # UNKNOWN, too, while it is being followed
        mentioned = frozenset[str]().union(*(unit.mentioned for unit in self._units))
        self._deals = any("Distributed" in name and "Sampler" in name for name in mentioned) or any(
            unit.owner is not None and unit.name in ("__iter__", "__getitem__") and unit.mentioned & RANKS
            for unit in self._units
        )

    def of(self, source: ast.expr, unit: Unit) -> str:
        """PREPARED, UNPREPARED, OWN_SAMPLER (a script that divides its data itself) or UNKNOWN."""
        state = self._state(source, unit)
        return OWN_SAMPLER if state == UNPREPARED and self._deals else state

    def _state(self, node: ast.expr, unit: Unit) -> str:
        if prepares(node):
            return PREPARED
        names = {last_name(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)}
        states = [self._name(name, unit) for name in sorted(names - {"self"})]
        if any(isinstance(one, ast.Call) for one in ast.walk(node)):
            states.append(UNPREPARED)
        return _first(states, PREPARED, UNPREPARED)

    def _name(self, name: str, unit: Unit) -> str:
        if (name, unit) not in self._names:
            self._names[name, unit] = UNKNOWN
            self._names[name, unit] = self._followed(name, unit)
        return self._names[name, unit]

    def _followed(self, name: str, unit: Unit) -> str:
        """A name's state, by what binds it, what it calls or what its function is given."""
        # `loader = tqdm(loader)`: what the name stood for before is what counts.
        values = [(v, unit) for v in bound(unit, name) if prepares(v) or not _mentions(v, name)]
        values += [(value, one) for value, one in self._made.get(name, ()) if one is not unit]
        if values:
            return _first([self._state(value, one) for value, one in values], PREPARED, UNPREPARED)
        if name in unit.parameters:
            return self._parameter(name, unit)
        if unit.parent is not None:
            return self._name(name, unit.parent)
        imported = [self._name(asked, other) for other, asked in self._imported(unit, name)]
        return _first(imported, PREPARED, UNPREPARED)

    @cached_property
    def _made(self) -> dict[str, list[tuple[ast.expr, Unit]]]:
        """What units give a name: the results of a function, what a class prepares, the attributes of that name."""
        found = defaultdict[str, list[tuple[ast.expr, Unit]]](list)
        for unit in self._units:
            for name, value in _given(unit):
                found[name].append((value, unit))
        return found

    def _parameter(self, name: str, unit: Unit) -> str:
        """Of several calls the one that prepares nothing counts."""
        place = unit.parameters.index(name) - (1 if unit.owner is not None else 0)
        states = []
        for caller, call in callers(self._units, unit):
            given = [one.value for one in call.keywords if one.arg == name] or call.args[place : place + 1]
            states += [self._state(one, caller) for one in given]
        return _first(states, UNPREPARED, PREPARED)

    def _imported(self, unit: Unit, name: str) -> Iterator[tuple[Unit, str]]:
        """The modules that a name of this one may come from, and its name there."""
        for node in unit.nodes:
            for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
                if alias.name == "*" or name == (alias.asname or alias.name.split(".")[0]):
                    for file, _ in self._reach.checkout.imports(unit.path, node):  # type: ignore[arg-type]
                        if self._reach.modules.get(file):
                            yield self._reach.modules[file][0], name if alias.name == "*" else alias.name


def _given(unit: Unit) -> Iterator[tuple[str, ast.expr]]:
    for node in unit.nodes:
        if unit.parent is not None and isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield unit.name, node.value
        if unit.owner is not None and isinstance(node, ast.Call) and prepares(node):
            yield unit.owner.name, node
        if isinstance(node, ast.Assign):
            parts = [part for target in node.targets for part in ast.walk(target)]
            yield from ((one.attr, node.value) for one in parts if isinstance(one, ast.Attribute))


def _mentions(value: ast.expr, name: str) -> bool:
    return any(last_name(one) == name for one in ast.walk(value) if isinstance(one, ast.Name | ast.Attribute))


def _first(states: list[str], *order: str) -> str:
    return next((one for one in order if one in states), UNKNOWN)
