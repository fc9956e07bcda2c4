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
from .reach import Reach, Unit

PREPARED, UNPREPARED, OWN_SAMPLER = "prepared", "unprepared", "own sampler"
NO_LOOP, UNKNOWN = "no loop over data", "unknown"
THROUGH = frozenset(
    {
        *(
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
        ),
        *(
            "Bar",
            "tqdm_notebook",
            "log_every",
            "prefetch",
            "infinite",
            "cycle_loader",
            "chain",
            "next",
            "metric_logger",
        ),
    }
)
PREPARES = frozenset({"prepare", "prepare_data_loader", "skip_first_batches"})
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
RANKS = frozenset({"get_rank", "process_index"})
_DEPTH = 12


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
        self._reach = reach
        mentioned = frozenset[str]().union(*(unit.mentioned for unit in self._units))
        self._samples = any("Distributed" in name and "Sampler" in name for name in mentioned) or any(
            map(_deals_itself, self._units)
        )
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
        if unit in seen or len(seen) > _DEPTH:
            return False
        seen.add(unit)
        for caller, call in self._callers(unit):
            around = self._loops[caller].get(id(call), [])[:1]
            for step in _steps(caller):
                if self._loops[caller].get(id(step), [])[:1] == around or (
                    around and around[0] in self._loops[caller].get(id(step), [])
                ):
                    return True
            if self._called_beside_a_step(caller, seen):
                return True
        return False

    def _callers(self, unit: Unit) -> Iterator[tuple[Unit, ast.AST]]:
        """Where a unit is called, or handed to something that calls it."""
        if unit.parent is None:
            return
        names = {unit.owner.name if unit.owner and unit.name == "__init__" else unit.name}
        if unit.owner and unit.name in ("__call__", "forward"):
            names = self._instances(unit.owner.name)
        for caller in self._units:
            if caller is unit or not names & caller.mentioned:
                continue
            for node in caller.nodes:
                if isinstance(node, ast.Call) and (
                    _last(node.func) in names or any(_last(argument) in names for argument in node.args)
                ):
                    yield caller, node

    def _instances(self, kind: str) -> set[str]:
        """The names that objects of a class are bound to, wherever; their calls are the class's `__call__`."""
        called = {kind, *(alias for alias, names in self._reach.aliases.items() if kind in names)}
        made = (
            target
            for unit in self._units
            for node in unit.nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Call)
            and _last(node.value.func) in called
            for target in node.targets
        )
        return {_last(target) for target in made} - {""}

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
                    yield Data(unit.path, line, ast.unparse(source)[:80], self._state(source, unit))
                return
        found = False
        if not loops and unit.parent is not None:  # a step function that fetches its batch itself
            for source in _drawn(unit.node):
                found = True
                line = getattr(source, "lineno", 1)
                yield Data(unit.path, line, ast.unparse(source)[:80], self._state(source, unit))
        around = self._callers(unit) if not found and unit not in seen and len(seen) < _DEPTH else ()
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
        for source in self._seen_through(loop.iter, unit, _DEPTH):
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
        elif isinstance(node, ast.Call) and _last(node.func) in ("zip", "zip_longest", "product"):
            for argument in node.args:
                yield from self._seen_through(argument, unit, depth)
        elif isinstance(node, ast.Call) and _last(node.func) in THROUGH and node.args:
            yield from self._seen_through(node.args[0], unit, depth)
        elif isinstance(node, ast.Name) and depth and (behind := self._behind(node.id, unit)):
            for one in behind:
                yield from self._seen_through(one, unit, depth - 1)
        else:
            yield node

    def _behind(self, name: str, unit: Unit) -> list[ast.expr]:
        """What a name stands for where it is bound to a bar or the like over something else."""
        return [value for _, value in _bindings(unit, name) if _wraps(value) and not _names(value, name)]

    def _computed_from(self, name: str, unit: Unit, items: frozenset[str]) -> bool:
        """Whether a name is bound to something made of an outer loop's item: chunks of a batch, not a loader."""
        values = [value for _, value in _bindings(unit, name)]
        return any(
            {node.id for node in ast.walk(value) if isinstance(node, ast.Name)} & items
            and not any("oader" in _last(node.func) for node in ast.walk(value) if isinstance(node, ast.Call))
            and not _prepares(value)
            for value in values
        )

    # -- whether it is prepared ----------------------------------------------------------------------------------

    def _state(self, source: ast.expr, unit: Unit) -> str:
        state = self._prepared(source, unit, _DEPTH, set())
        return OWN_SAMPLER if state == UNPREPARED and self._samples else state

    def _prepared(self, node: ast.expr, unit: Unit, depth: int, seen: set[tuple[str, Unit]]) -> str:
        if not depth:
            return UNKNOWN
        if _prepares(node):
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
        bound = [(target, value) for target, value in _bindings(unit, name) if not _renews(value, name)]
        if any(_prepares(value) for _, value in bound):
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
            place = next((n for n, one in enumerate(target.elts) if _last(one) == name), None)
            if isinstance(value, ast.Tuple | ast.List) and place is not None and place < len(value.elts):
                return self._prepared(value.elts[place], unit, depth - 1, seen)
            if isinstance(value, ast.Call) and place is not None:
                return self._call(value, unit, depth - 1, seen, place)
        return self._prepared(value, unit, depth - 1, seen)

    def _parameter(self, name: str, unit: Unit, depth: int, seen: set[tuple[str, Unit]]) -> str:
        place = unit.parameters.index(name) - (1 if unit.owner is not None else 0)
        states = []
        for caller, call in self._callers(unit):
            if not isinstance(call, ast.Call):
                continue
            keywords = [one.value for one in call.keywords if one.arg == name]
            given = keywords or call.args[place : place + 1]
            if given and not isinstance(given[0], ast.Starred) and _last(call.func) in _called_as(unit):
                states.append(self._prepared(given[0], caller, depth - 1, set(seen)))
        return _weakest([state for state in states if state != UNKNOWN]) if states else UNKNOWN

    def _attribute(
        self, node: ast.Attribute, name: str, unit: Unit, depth: int, seen: set[tuple[str, Unit]]
    ) -> str:
        """An attribute, by its name: prepared wherever it is bound to something prepared."""
        states = []
        for other in self._units:
            for target, value in _attribute_bindings(other, name):
                if _prepares(value):
                    return PREPARED
                if not _names(value, name):
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
        name = _last(value)
        for other in self._units:
            for one in other.nodes:
                if isinstance(one, ast.Assign) and _prepares(one.value):
                    targets = [part for target in one.targets for part in ast.walk(target)]
                    if any(isinstance(part, ast.Subscript) and _last(part.value) == name for part in targets):
                        return PREPARED
        return self._prepared(value, unit, depth - 1, seen)

    def _call(
        self, call: ast.Call, unit: Unit, depth: int, seen: set[tuple[str, Unit]], place: int | None = None
    ) -> str:
        """What a call gives: a known function's results, a known class's attributes, or its arguments."""
        name = _last(call.func)
        makers = [one for one in self._units if one.name == name and one.parent is not None]
        if makers:
            returned = [value for one in makers for value in _returned(one, place)]
            states = [self._prepared(value, one, depth - 1, seen) for value, one in returned]
            return _weakest([state for state in states if state != UNKNOWN] or [UNPREPARED])
        methods = [one for one in self._units if one.owner is not None and one.owner.name == name]
        if any(_prepares(node) for one in methods for node in one.nodes if isinstance(node, ast.expr)):
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


def _called_as(unit: Unit) -> set[str]:
    names = {unit.name}
    if unit.owner is not None and unit.name in ("__init__", "__call__", "forward"):
        names.add(unit.owner.name)
    return names


def _weakest(states: list[str]) -> str:
    for state in (UNPREPARED, UNKNOWN, PREPARED):
        if state in states:
            return state
    return UNKNOWN


def _steps(unit: Unit) -> list[ast.Call]:
    calls = (node for node in unit.nodes if isinstance(node, ast.Call))
    return [call for call in calls if _last(call.func) in ("step", "minimize")]


def _last(node: ast.AST) -> str:
    """The last part of a dotted name; of a subscript the name of what is indexed."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    return _last(node.value) if isinstance(node, ast.Subscript | ast.Starred) else ""


def _names(value: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name | ast.Attribute) and _last(node) == name for node in ast.walk(value))


def _renews(value: ast.expr, name: str) -> bool:
    """`loader = tqdm(loader)`: what the name stood for before is what counts."""
    return _wraps(value) and _names(value, name)


def _prepares(value: ast.AST) -> bool:
    return any(isinstance(node, ast.Call) and _last(node.func) in PREPARES for node in ast.walk(value))


def _wraps(value: ast.expr) -> bool:
    """A bar, an `enumerate`, a conditional one: what is seen through."""
    if isinstance(value, ast.IfExp):
        return _wraps(value.body) or _wraps(value.orelse)
    return isinstance(value, ast.Call) and _last(value.func) in THROUGH | {"zip"} and bool(value.args)


def _bindings(unit: Unit, name: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    """(target, value) of what binds a plain name in a unit's own code; a loop's or a with's target too."""
    for node in unit.nodes:
        match node:
            case ast.Assign(targets=targets, value=value):
                pairs = [(target, value) for target in targets]
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                pairs = [(target, value)]
            case ast.NamedExpr(target=target, value=value):
                pairs = [(target, value)]
            case ast.withitem(context_expr=value, optional_vars=ast.expr() as target):
                pairs = [(target, value)]
            case ast.For(target=target, iter=value):
                pairs = [(target, value)]
            case _:
                continue
        for target, value in pairs:
            plain = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
            if any(isinstance(one, ast.Name) and one.id == name for one in plain):
                yield target, value


def _attribute_bindings(unit: Unit, name: str) -> Iterator[tuple[ast.expr, ast.expr]]:
    for node in unit.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                plain = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
                if any(isinstance(one, ast.Attribute) and one.attr == name for one in plain):
                    yield target, node.value


def _returned(unit: Unit, place: int | None) -> Iterator[tuple[ast.expr, Unit]]:
    for node in unit.nodes:
        value = node.value if isinstance(node, ast.Return | ast.Yield) else None
        if value is None:
            continue
        if isinstance(value, ast.Tuple) and place is not None and place < len(value.elts):
            yield value.elts[place], unit
        else:
            yield value, unit


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
        name = _last(source.func)
        if name in ("range", "arange", "trange"):
            return len(source.args) == 3
        return name not in NOT_DATA and name not in ("count", "repeat", "sorted")
    if isinstance(source, ast.List | ast.Tuple | ast.Constant | ast.Set | ast.Dict):
        return False
    return _last(source) not in NOT_DATA
