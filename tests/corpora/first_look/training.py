"""What the training loops of a program read, and whether the conversion prepares it.

Roles come from use: a backward trains where its function, its class or a caller steps an optimizer; the data is what
the innermost loop over data around it iterates, in its own function or around the function's calls. The tool is not
asked, and its reasons are not read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from .entries import backwards
from .preparation import Preparation, bound, callers, last_name, prepares
from .reach import Reach, Unit

NO_LOOP = "no loop over data"
DEPTH = 12  # of the names and calls that are followed
SEEN_THROUGH = frozenset(
    [
        "enumerate",
        "tqdm",
        "trange",
        "track",
        "progress_bar",
        "islice",
        "iter",
        "reversed",
        "cycle",
        "list",
        "Bar",
        "tqdm_notebook",
        "log_every",
        "prefetch",
        "infinite",
        "cycle_loader",
        "chain",
        "next",
        "metric_logger",
        "zip",
        "zip_longest",
        "product",
    ]
)
NOT_DATA = frozenset(
    [
        "parameters",
        "named_parameters",
        "modules",
        "named_modules",
        "children",
        "keys",
        "items",
        "values",
        "param_groups",
        "count",
        "repeat",
        "sorted",
    ]
)
LOOPS = ast.For | ast.AsyncFor | ast.While


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
        self._preparation = Preparation(reach)
        self._loops = {unit: _loops_around(unit) for unit in self._units}

    def data(self) -> list[Data]:
        """One entry for each loop that feeds a backward; a program that has none says so once for each backward."""
        found = {
            (one.path, one.line, one.text): one
            for unit in self._units
            for call in backwards(unit)
            if self._trains(unit)
            for one in self._feeding(unit, call)
        }
        return [one for one in found.values() if one.state != NO_LOOP] or list(found.values())

    def _trains(self, unit: Unit) -> bool:
        own = [one for one in self._units if one is unit or (unit.owner and one.owner is unit.owner)]
        return any(_steps(one) for one in own) or self._called_beside_a_step(unit, set())

    def _called_beside_a_step(self, unit: Unit, seen: set[Unit]) -> bool:
        """Whether a caller steps an optimizer in the loop in which it calls the unit; an attack's caller does not."""
        if unit in seen or len(seen) > DEPTH:
            return False
        seen.add(unit)
        for caller, call in callers(self._units, unit):
            around = self._loops[caller].get(id(call), [])[:1]
            for step in _steps(caller):
                loops = self._loops[caller].get(id(step), [])
                if loops[:1] == around or (around and around[0] in loops):
                    return True
            if self._called_beside_a_step(caller, seen):
                return True
        return False

    def _feeding(self, unit: Unit, node: ast.AST, seen: frozenset[Unit] = frozenset()) -> Iterator[Data]:
        loops = self._loops[unit].get(id(node), [])
        bound_by = [_names(getattr(loop, "target", None)) for loop in loops]
        for number, loop in enumerate(loops):  # from the innermost outwards
            outer = frozenset[str]().union(*bound_by[number + 1 :])
            if sources := list(self._sources(unit, loop, outer)):
                yield from (self._data(unit, source) for source in sources)
                return
        found = False
        if not loops and unit.parent is not None:  # a step function that fetches its batch itself
            for source in _drawn(unit.node):
                found = True
                yield self._data(unit, source)
        if not found and unit not in seen and len(seen) < DEPTH:
            for caller, call in callers(self._units, unit):
                for one in self._feeding(caller, call, seen | {unit}):
                    found |= one.state != NO_LOOP
                    if one.state != NO_LOOP:
                        yield one
        if not found:
            yield Data(unit.path, getattr(node, "lineno", 1), "", NO_LOOP)

    def _data(self, unit: Unit, source: ast.expr) -> Data:
        return Data(unit.path, source.lineno, ast.unparse(source)[:80], self._preparation.of(source, unit))

    def _sources(self, unit: Unit, loop: ast.stmt, outer: frozenset[str]) -> Iterator[ast.expr]:
        """outer: the names of the loops further out: what is computed from their items is no data."""
        if drawn := next(_drawn(loop), None):
            yield drawn
        elif isinstance(loop, ast.For | ast.AsyncFor):
            for source in _seen_through(loop.iter, unit, DEPTH):
                if _is_data(source) and not self._is_part(source, unit, outer):
                    yield source

    def _is_part(self, source: ast.expr, unit: Unit, outer: frozenset[str]) -> bool:
        """Whether it is computed from an outer loop's item: chunks of a batch, not a loader."""
        if not isinstance(source, ast.Name):
            return not isinstance(source, ast.Subscript | ast.Attribute) and bool(_names(source) & outer)
        for value in bound(unit, source.id):
            calls = [last_name(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)]
            if _names(value) & outer and not any("oader" in one for one in calls) and not prepares(value):
                return True
        return False


def _seen_through(node: ast.expr, unit: Unit, depth: int) -> Iterator[ast.expr]:
    """The iterables behind bars, `enumerate`, `zip`, and names that are bound to those."""
    behind: list[ast.expr] = []
    if isinstance(node, ast.IfExp):
        behind = [node.body, node.orelse]
    elif isinstance(node, ast.Call) and last_name(node.func) in SEEN_THROUGH:
        behind = node.args if "zip" in last_name(node.func) else node.args[:1]
    elif isinstance(node, ast.Name) and depth:
        behind = [one for one in bound(unit, node.id) if _wraps(one) and node.id not in _names(one)]
    for one in behind:
        yield from _seen_through(one, unit, depth - 1)
    if not behind:
        yield node


def _wraps(value: ast.expr) -> bool:
    if isinstance(value, ast.IfExp):
        return _wraps(value.body) or _wraps(value.orelse)
    return isinstance(value, ast.Call) and last_name(value.func) in SEEN_THROUGH and bool(value.args)


def _names(node: ast.AST | None) -> frozenset[str]:
    return frozenset(one.id for one in ast.walk(node) if isinstance(one, ast.Name)) if node else frozenset()


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
            if id(child) in own or isinstance(node, ast.arguments):
                found[id(child)] = loops
                stack.append((child, [child, *loops] if isinstance(child, LOOPS) else loops))
    return found


def _drawn(loop: ast.AST) -> Iterator[ast.expr]:
    """What `next(x)` or `x.next()` in a loop's body takes its batches from."""
    stack: list[ast.AST] = list(getattr(loop, "body", ()))
    while stack:
        node = stack.pop()
        if isinstance(node, ast.For | ast.While | ast.FunctionDef | ast.ClassDef):
            continue
        match node:
            case ast.Call(func=ast.Name(id="next"), args=[source, *_]):
                yield source
            case ast.Call(func=ast.Attribute(value=source, attr="next" | "__next__")):
                yield source
        stack.extend(ast.iter_child_nodes(node))


def _is_data(source: ast.expr) -> bool:
    if isinstance(source, ast.Call) and last_name(source.func) in ("range", "arange", "trange"):
        return len(source.args) == 3
    if isinstance(source, ast.List | ast.Tuple | ast.Constant | ast.Set | ast.Dict):
        return False
    return last_name(source.func if isinstance(source, ast.Call) else source) not in NOT_DATA
