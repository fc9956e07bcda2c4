"""Whether what a loop reads gives each process a part of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .bindings import attribute_bindings, bindings, last_name, names, prepares, renews, returned
from .callers import Callers, called_as
from .reach import Reach, Unit

PREPARED, UNPREPARED, OWN_SAMPLER, UNKNOWN = "prepared", "unprepared", "own sampler", "unknown"
RANKS = frozenset({"get_rank", "process_index"})
DEPTH = 12  # of the names that are followed


class Preparation:
    """Follows an expression to what it is bound to, through the script's functions and modules."""

    def __init__(self, reach: Reach, callers: Callers) -> None:
        self._reach, self._callers = reach, callers
        self._units = list(reach.active)
        mentioned = frozenset[str]().union(*(unit.mentioned for unit in self._units))
        self._samples = any("Distributed" in name and "Sampler" in name for name in mentioned) or any(
            map(_deals_itself, self._units)
        )

    def of(self, source: ast.expr, unit: Unit) -> str:
        """PREPARED, UNPREPARED, OWN_SAMPLER (a script that divides its data itself) or UNKNOWN."""
        state = self._prepared(source, unit, DEPTH, set())
        return OWN_SAMPLER if state == UNPREPARED and self._samples else state

    def _prepared(self, node: ast.expr, unit: Unit, depth: int, seen: set[tuple[str, Unit]]) -> str:
        if not depth:
            return UNKNOWN
        if prepares(node):
            return PREPARED
        match node:
            case ast.Name(id=name):
                return self._name(name, unit, depth, seen)
            case ast.Attribute(attr=name):
                return self._attribute(node, name, unit, depth, seen)
            case ast.Subscript(value=value):
                return self._subscript(node, value, unit, depth, seen)
            case ast.Call():
                return self._call(node, unit, depth, seen)
            case ast.IfExp(body=body, orelse=orelse):
                return _weakest([self._prepared(one, unit, depth - 1, seen) for one in (body, orelse)])
            case ast.Dict(values=values) | ast.Tuple(elts=values) | ast.List(elts=values):
                return _weakest([self._prepared(one, unit, depth - 1, seen) for one in values[:8]])
            case ast.DictComp(value=value) | ast.ListComp(elt=value) | ast.GeneratorExp(elt=value):
                return self._prepared(value, unit, depth - 1, seen)
        return UNKNOWN

    def _name(self, name: str, unit: Unit, depth: int, seen: set[tuple[str, Unit]]) -> str:
        if (name, unit) in seen:
            return UNKNOWN
        seen.add((name, unit))
        bound = [(target, value) for target, value in bindings(unit, name) if not renews(value, name)]
        if any(prepares(value) for _, value in bound):
            return PREPARED
        if bound:
            states = [self._bound_to(target, value, name, unit, depth, seen) for target, value in bound]
            return _weakest([state for state in states if state != UNKNOWN] or states)
        if name in unit.parameters:
            return self._parameter(name, unit, depth, seen)
        if unit.parent is not None:
            return self._name(name, unit.parent, depth - 1, seen)
        for other, asked in self._imported(unit, name):
            if (state := self._name(asked, other, depth - 1, seen)) != UNKNOWN:
                return state
        return UNKNOWN

    def _bound_to(
        self,
        target: ast.expr,
        value: ast.expr,
        name: str,
        unit: Unit,
        depth: int,
        seen: set[tuple[str, Unit]],
    ) -> str:
        """`name` in `target = value`: the part of the value that it gets."""
        if isinstance(target, ast.Tuple | ast.List):
            place = next((n for n, one in enumerate(target.elts) if last_name(one) == name), None)
            if isinstance(value, ast.Tuple | ast.List) and place is not None and place < len(value.elts):
                return self._prepared(value.elts[place], unit, depth - 1, seen)
            if isinstance(value, ast.Call) and place is not None:
                return self._call(value, unit, depth - 1, seen, place)
        return self._prepared(value, unit, depth - 1, seen)

    def _parameter(self, name: str, unit: Unit, depth: int, seen: set[tuple[str, Unit]]) -> str:
        place = unit.parameters.index(name) - (1 if unit.owner is not None else 0)
        states = []
        for caller, call in self._callers.of(unit):
            if not isinstance(call, ast.Call):
                continue
            keywords = [one.value for one in call.keywords if one.arg == name]
            given = keywords or call.args[place : place + 1]
            if given and not isinstance(given[0], ast.Starred) and last_name(call.func) in called_as(unit):
                states.append(self._prepared(given[0], caller, depth - 1, set(seen)))
        return _weakest([state for state in states if state != UNKNOWN]) if states else UNKNOWN

    def _attribute(
        self, node: ast.Attribute, name: str, unit: Unit, depth: int, seen: set[tuple[str, Unit]]
    ) -> str:
        """An attribute, by its name: prepared wherever it is bound to something prepared."""
        states = []
        for other in self._units:
            for target, value in attribute_bindings(other, name):
                if prepares(value):
                    return PREPARED
                if not names(value, name):
                    states.append(self._bound_to(target, value, name, other, depth - 1, seen))
        known = [state for state in states if state != UNKNOWN]
        if known:
            return _weakest(known)
        return self._name(name, self._module_of(unit, node), depth - 1, seen)

    def _module_of(self, unit: Unit, node: ast.Attribute) -> Unit:
        """The module that `module.name` speaks of; the unit's own where it is none."""
        top = unit
        while top.parent is not None:
            top = top.parent
        if isinstance(node.value, ast.Name):
            for other, _ in self._imported(top, node.value.id):
                return other
        return top

    def _subscript(
        self, node: ast.Subscript, value: ast.expr, unit: Unit, depth: int, seen: set[tuple[str, Unit]]
    ) -> str:
        """`loaders[phase]`: prepared where an entry of it is bound to something prepared."""
        name = last_name(value)
        for other in self._units:
            for one in other.nodes:
                if isinstance(one, ast.Assign) and prepares(one.value):
                    targets = [part for target in one.targets for part in ast.walk(target)]
                    if any(
                        isinstance(part, ast.Subscript) and last_name(part.value) == name for part in targets
                    ):
                        return PREPARED
        return self._prepared(value, unit, depth - 1, seen)

    def _call(
        self, call: ast.Call, unit: Unit, depth: int, seen: set[tuple[str, Unit]], place: int | None = None
    ) -> str:
        """What a call gives: a known function's results, a known class's attributes, or its arguments."""
        name = last_name(call.func)
        makers = [one for one in self._units if one.name == name and one.parent is not None]
        if makers:
            given = [value for one in makers for value in returned(one, place)]
            states = [self._prepared(value, one, depth - 1, seen) for value, one in given]
            return _weakest([state for state in states if state != UNKNOWN] or [UNPREPARED])
        methods = [one for one in self._units if one.owner is not None and one.owner.name == name]
        if any(prepares(node) for one in methods for node in one.nodes if isinstance(node, ast.expr)):
            return PREPARED
        inner = [*call.args, *(one.value for one in call.keywords)]
        if isinstance(call.func, ast.Attribute) and name not in ("DataLoader",):
            inner.append(call.func.value)
        states = [self._prepared(one, unit, depth - 1, seen) for one in inner]
        return PREPARED if PREPARED in states else UNPREPARED

    def _imported(self, unit: Unit, name: str) -> Iterator[tuple[Unit, str]]:
        """The modules that a name of this one may come from, and its name there."""
        for node in unit.nodes:
            if not isinstance(node, ast.Import | ast.ImportFrom):
                continue
            for alias in node.names:
                if name in (alias.asname or alias.name.split(".")[0], "*") or alias.name == "*":
                    asked = name if alias.name == "*" else alias.name
                    for file, _ in self._reach.checkout.imports(unit.path, node):
                        if self._reach.modules.get(file):
                            yield self._reach.modules[file][0], asked


def _deals_itself(unit: Unit) -> bool:
    """A data set or a sampler that gives each rank items of its own."""
    return (
        unit.owner is not None and unit.name in ("__iter__", "__getitem__") and bool(unit.mentioned & RANKS)
    )


def _weakest(states: list[str]) -> str:
    for state in (UNPREPARED, UNKNOWN, PREPARED):
        if state in states:
            return state
    return UNKNOWN
