"""What the training loops of a program read, and whether the conversion prepares it.

Roles come from use: a backward trains where its function, its class or a caller steps an optimizer; the data is what
the innermost loop over data around it iterates, in its own function or around the function's calls. The tool is not
asked, and its reasons are not read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .bindings import THROUGH, bindings, last_name, names, prepares, wraps
from .callers import Callers
from .entries import backwards
from .preparation import DEPTH, Preparation
from .reach import Reach, Unit

NO_LOOP = "no loop over data"

NOT_DATA = frozenset(
    {
        "parameters",
        "named_parameters",
        "modules",
        "named_modules",
        "children",
        "keys",
        "items",
        "values",
        "param_groups",
    }
)


@dataclass(frozen=True)
class Data:
    """What one training loop reads: where, as written, and whether each process gets a part of its own."""

    path: str
    line: int
    text: str
    state: str


class Training:
    """The training loops of a program, as its reached code shows them."""

    def __init__(self, reach: Reach) -> None:
        self._units = list(reach.active)
        self._callers = Callers(reach)
        self._preparation = Preparation(reach, self._callers)
        self._loops = {unit: _loops_around(unit) for unit in self._units}

    def data(self) -> list[Data]:
        """One entry for each loop that feeds a backward; a program that has none says so once for each backward."""
        found: dict[tuple[str, int, str], Data] = {}
        for unit in self._units:
            for call in backwards(unit):
                if self._trains(unit):
                    for one in self._feeding(unit, call):
                        found[one.path, one.line, one.text] = one
        loops = [one for one in found.values() if one.state != NO_LOOP]
        return loops or list(found.values())

    # -- which backward trains -----------------------------------------------------------------------------------

    def _trains(self, unit: Unit) -> bool:
        own = [one for one in self._units if one is unit or (unit.owner and one.owner is unit.owner)]
        return any(_steps(one) for one in own) or self._called_beside_a_step(unit, set())

    def _called_beside_a_step(self, unit: Unit, seen: set[Unit]) -> bool:
        """Whether a caller steps an optimizer in the loop in which it calls the unit; an attack's caller does not."""
        if unit in seen or len(seen) > DEPTH:
            return False
        seen.add(unit)
        for caller, call in self._callers.of(unit):
            around = self._loops[caller].get(id(call), [])[:1]
            for step in _steps(caller):
                if self._loops[caller].get(id(step), [])[:1] == around or (
                    around and around[0] in self._loops[caller].get(id(step), [])
                ):
                    return True
            if self._called_beside_a_step(caller, seen):
                return True
        return False

    # -- what feeds it -------------------------------------------------------------------------------------------

    def _feeding(self, unit: Unit, node: ast.AST, seen: frozenset[Unit] = frozenset()) -> Iterator[Data]:
        loops = self._loops[unit].get(id(node), [])
        outer = [_bound(loop) for loop in loops]
        for number, loop in enumerate(loops):  # from the innermost outwards
            items = frozenset[str]().union(*outer[number + 1 :])
            sources = list(self._sources(unit, loop, items))
            if sources:
                for source in sources:
                    line = getattr(source, "lineno", loop.lineno)
                    yield Data(unit.path, line, ast.unparse(source)[:80], self._preparation.of(source, unit))
                return
        found = False
        if not loops and unit.parent is not None:  # a step function that fetches its batch itself
            for source in _drawn(unit.node):
                found = True
                line = getattr(source, "lineno", 1)
                yield Data(unit.path, line, ast.unparse(source)[:80], self._preparation.of(source, unit))
        around = self._callers.of(unit) if not found and unit not in seen and len(seen) < DEPTH else ()
        for caller, call in around:
            for one in self._feeding(caller, call, seen | {unit}):
                if one.state != NO_LOOP:
                    found = True
                    yield one
        if not found:
            yield Data(unit.path, getattr(node, "lineno", 1), "", NO_LOOP)

    def _sources(self, unit: Unit, loop: ast.stmt, items: frozenset[str]) -> Iterator[ast.expr]:
        for drawn in _drawn(loop):
            yield drawn
            return
        if not isinstance(loop, ast.For | ast.AsyncFor):
            return
        for source in self._seen_through(loop.iter, unit, DEPTH):
            if not _is_data(source):
                continue
            names = {node.id for node in ast.walk(source) if isinstance(node, ast.Name)}
            if not (names & items and not isinstance(source, ast.Name | ast.Subscript | ast.Attribute)):
                if isinstance(source, ast.Name) and self._computed_from(source.id, unit, items):
                    continue
                yield source

    def _seen_through(self, node: ast.expr, unit: Unit, depth: int) -> Iterator[ast.expr]:
        """The iterables behind bars, `enumerate`, `zip`, and names that are bound to those."""
        if isinstance(node, ast.IfExp):
            yield from self._seen_through(node.body, unit, depth)
            yield from self._seen_through(node.orelse, unit, depth)
        elif isinstance(node, ast.Call) and last_name(node.func) in ("zip", "zip_longest", "product"):
            for argument in node.args:
                yield from self._seen_through(argument, unit, depth)
        elif isinstance(node, ast.Call) and last_name(node.func) in THROUGH and node.args:
            yield from self._seen_through(node.args[0], unit, depth)
        elif isinstance(node, ast.Name) and depth and (behind := self._behind(node.id, unit)):
            for one in behind:
                yield from self._seen_through(one, unit, depth - 1)
        else:
            yield node

    def _behind(self, name: str, unit: Unit) -> list[ast.expr]:
        """What a name stands for where it is bound to a bar or the like over something else."""
        return [value for _, value in bindings(unit, name) if wraps(value) and not names(value, name)]

    def _computed_from(self, name: str, unit: Unit, items: frozenset[str]) -> bool:
        """Whether a name is bound to something made of an outer loop's item: chunks of a batch, not a loader."""
        values = [value for _, value in bindings(unit, name)]
        return any(
            {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} & items
            and not any(
                "oader" in last_name(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)
            )
            and not prepares(value)
            for value in values
        )


def _steps(unit: Unit) -> list[ast.Call]:
    calls = (node for node in unit.nodes if isinstance(node, ast.Call))
    return [call for call in calls if last_name(call.func) in ("step", "minimize")]


def _loops_around(unit: Unit) -> dict[int, list[ast.stmt]]:
    """For the id of each node of a unit, the loops around it, innermost first."""
    found: dict[int, list[ast.stmt]] = {}
    own = {id(node) for node in unit.nodes}
    stack: list[tuple[ast.AST, list[ast.stmt]]] = [(unit.node, [])]
    while stack:
        node, loops = stack.pop()
        for child in ast.iter_child_nodes(node):
            if id(child) not in own and not isinstance(node, ast.arguments):
                continue
            found[id(child)] = loops
            inner = isinstance(child, ast.For | ast.AsyncFor | ast.While)
            stack.append((child, [child, *loops] if inner else loops))
    return found


def _bound(loop: ast.stmt) -> frozenset[str]:
    target = getattr(loop, "target", None)
    return (
        frozenset(node.id for node in ast.walk(target) if isinstance(node, ast.Name))
        if target
        else frozenset()
    )


def _drawn(loop: ast.stmt) -> Iterator[ast.expr]:
    """What `next(x)` or `x.next()` in a loop's body takes its batches from."""
    stack: list[ast.AST] = list(getattr(loop, "body", ()))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.ClassDef):
            continue
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "next"
            and node.args
        ):
            yield node.args[0]
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("next", "__next__")
        ):
            yield node.func.value
        stack.extend(ast.iter_child_nodes(node))


def _is_data(source: ast.expr) -> bool:
    if isinstance(source, ast.Call):
        name = last_name(source.func)
        if name in ("range", "arange", "trange"):
            return len(source.args) == 3
        return name not in NOT_DATA and name not in ("count", "repeat", "sorted")
    if isinstance(source, ast.List | ast.Tuple | ast.Constant | ast.Set | ast.Dict):
        return False
    return last_name(source) not in NOT_DATA
