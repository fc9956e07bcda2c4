"""What counts the batches of one process: in the loops over divided data, and in the functions that these call.

`i` of `for i, batch in enumerate(loader)`, `self.step += 1` in that loop or in a method that it calls, and the parameter of a
function that is given one of them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property

from crosstrain_migrate.core.reading.alike import counters_of
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import LOOPS, Frame, Loop, is_function_frame, is_method
from crosstrain_migrate.core.reading.ranges import is_range, item_of, range_behind
from crosstrain_migrate.core.reading.roles import STEPS, Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .whole_counts import divisor

_DEPTH = 3


class OwnCounts:
    """The counters of one loop over divided data, by the frames that read them."""

    def __init__(
        self,
        script: Script,
        loop: Loop,
        data: Data,
        dealt: Iterable[Loop],
        moved: Iterable[ast.Call],
        rates: set[Function],
    ) -> None:
        """data: what it trains on. dealt: all such loops. moved: the steps of prepared schedules, which move by all processes'
        batches. rates: `rates_of` the script."""
        self.script = script
        self.loop = loop
        self.dealt = set(dealt)
        self.moved = set(moved)
        self.rates = rates
        self.frame = script.frame(loop)
        self._names: dict[Frame, set[str]] = defaultdict(set)
        self._grows = set(self._grown(walk_all(loop.body), loop))
        self.names = self._turns(data) | self._grows
        self.names |= self._computed(walk_all(loop.body))
        self._add(self.frame, self.names)
        self.called: list[Function] = []
        self._follow([n for n in walk_all(loop.body) if isinstance(n, ast.Call)], _DEPTH)

    def reads(self) -> Iterator[ast.expr]:
        """Where a counter is read, while the loop lasts or by the loops around it."""
        around = [one for one in self.script.loops_around(self.loop) if isinstance(one, ast.While)]
        tests = [one.test for one in (*around, self.loop) if isinstance(one, ast.While)]
        above = [n for n in self.script.within(self.frame) if place_of(n) < place_of(self.loop)]
        nodes = [*above, *walk_all(tests), *walk_all(self.loop.body)]
        yield from self._reads_in(self.frame, dict.fromkeys(nodes))
        for function in self.called:
            yield from self._reads_in(function, self.script.within(function))

    def sums(self) -> Iterator[tuple[str, ast.expr]]:
        """What the loop adds up, each with what divides it while the loop lasts, and behind it: `total += loss.item()`,
        `total / period`."""
        nodes = walk_all(self.loop.body)
        grown = [
            n for n in nodes if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add) and not _counted(n)
        ]
        texts = {written(n.target) for n in grown if self._turn_of(n) is self.loop}
        for node in nodes:
            match node:
                case ast.BinOp(left, ast.Div(), by) | ast.AugAssign(left, ast.Div(), by) if (
                    written(left) in texts
                ):
                    yield written(left), by
        for one in grown:  # `total += loss.item() / batches`
            if isinstance(one.value, ast.BinOp) and isinstance(one.value.op, ast.Div):
                yield written(one.target), one.value.right
        for text in texts if isinstance(self.loop, ast.For) else ():
            divisors = (divisor(self.script, read) for read in self.script.reads_behind(self.loop, text))
            yield from ((text, by) for by in divisors if by is not None)

    def starts(self) -> Iterator[ast.expr]:
        """What a counter of the loop begins at above it: `step = epoch * steps_per_epoch`."""
        for text in self._grows:
            for value in self.script.values(self.frame, text):
                if _counted(self.script.statement(value)) != text and self.loop not in self.script.around(
                    value
                ):
                    yield value

    def _reads_in(self, frame: Frame, nodes: Iterable[ast.AST]) -> Iterator[ast.expr]:
        for node in nodes:
            is_read = isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)
            if is_read and self.script.frame(node) is frame and self._is_own(node, frame):
                assert isinstance(node, ast.expr)
                yield node

    def _is_own(self, node: ast.AST, frame: Frame) -> bool:
        """Whether a variable counts, or the attribute of another object that only what counts is bound to: `runner.step`."""
        if written(node) in self._names[frame]:
            return True
        if not isinstance(node, ast.Attribute) or written(node.value) == "self":
            return False
        own = {home for home, names in self._names.items() if f"self.{node.attr}" in names}
        return bool(own) and all(self.script.frame(one) in own for one in self._stores.get(node.attr, ()))

    @cached_property
    def _stores(self) -> dict[str, list[ast.Attribute]]:
        found: dict[str, list[ast.Attribute]] = defaultdict(list)
        for one in self.script.table.each(ast.Attribute):
            if not isinstance(one.ctx, ast.Load):
                found[one.attr].append(one)
        return found

    # -- what counts -------------------------------------------------------------------------------------------

    def _turns(self, data: Data) -> set[str]:
        """`i` of `for i, batch in enumerate(loader)`, and of `for i in range(steps): batch = next(batches)`; the numbers of a range
        that is dealt itself are those of all."""
        if not isinstance(self.loop, ast.For):
            return set()
        item = {item_of(self.loop)} - {""}
        if data.loop is not self.loop and any(map(is_range, walk(self.loop.iter))):
            return counters_of(self.loop, self.script) | item
        is_dealt = range_behind(self.script, data.frame, data.node) is not None
        return counters_of(self.loop, self.script) - (item if is_dealt else set())

    def _grown(self, nodes: Iterable[ast.AST], loop: Loop) -> Iterator[str]:
        """What grows by one with each turn of a loop, and with nothing else but the turns of other loops over divided data."""
        for node in nodes:
            text = _counted(node)
            if not text or self._turn_of(node) is not loop:
                continue
            frame = self.script.frame(node)
            homes = self.script.homes(frame, text)
            grown = [n for home in homes for n in self.script.within(home) if _counted(n) == text]
            if all(self._turn_of(one) in self.dealt or self._runs_in(one) for one in grown):
                yield text

    def _computed(self, nodes: list[ast.AST]) -> set[str]:
        """What each turn binds to a count that goes on from one pass to the next: `step = epoch * batches + i`."""
        turns = [n for n in nodes if self._turn_of(n) is self.loop]
        others = [n for n in self.script.within(self.frame) if isinstance(n, ast.Assign) and n not in nodes]
        bound = {written(t) for n in others for t in n.targets if not isinstance(n.value, ast.Constant)}
        return self._bound_to_counts(turns, self.names) - bound

    def _bound_to_counts(self, nodes: Iterable[ast.AST], counts: set[str]) -> set[str]:
        """The variables that are bound to a count, or to one that more is added to."""
        found = set[str]()
        for node in (n for n in nodes if isinstance(n, ast.Assign) and len(n.targets) == 1):
            is_count = any(written(one) in counts | found for one in _terms(node.value))
            if is_count and isinstance(node.targets[0], ast.Name | ast.Attribute):
                found.add(written(node.targets[0]))
        return found

    def _turn_of(self, node: ast.AST) -> Loop | None:
        return next((one for one in self.script.around(node) if isinstance(one, LOOPS)), None)

    def _runs_in(self, node: ast.AST) -> bool:
        """Whether a loop over divided data calls the function of a node once in a turn."""
        frame = self.script.frame(node)
        calls = calls_of(self.script, frame) if is_function_frame(frame) else []
        return bool(calls) and all(self._turn_of(call) in self.dealt for call in calls)

    def _add(self, frame: Frame, names: Iterable[str]) -> None:
        for name in names:
            for home in self.script.homes(frame, name):
                self._names[home].add(name)

    # -- what is called ----------------------------------------------------------------------------------------

    def _follow(self, calls: Iterable[ast.Call], depth: int) -> None:
        """The functions of the project that a turn runs: what they count, and which counters they are given."""
        others = (call for call in calls if call not in self.moved)
        for call, function in ((c, f) for c in others for f in self._run_by(c)):
            if function in self.called or function is self.frame or self.script.is_generator(function):
                continue
            if function in self.rates:
                continue
            self.called.append(function)
            inner = self.script.within(function)
            if self._turn_of(call) is self.loop and self._runs_in(inner[0] if inner else function):
                grown = (_counted(n) for n in inner if self._turn_of(n) is None)
                self._add(function, {text for text in grown if text.startswith("self.")})
            self._add(function, self._given(function))
            self._add(function, self._bound_to_counts(inner, self._names[function]))
            if depth:
                self._follow(self.script.calls_in(function), depth - 1)

    def _run_by(self, call: ast.Call) -> list[Function]:
        """The functions that a call may run: a method of the class of its object, where that is known."""
        found = self.script.run_by(call)
        if not found:  # `weight()` of `weight = Ramp(steps)`
            objects = map(self.script.class_made, self.script.values_anywhere(written(call.func)))
            return [m for cls in objects for m in self.script.methods(cls, "__call__")]
        if not isinstance(call.func, ast.Attribute) or written(call.func.value) == "self":
            return found
        made = self.script.values_anywhere(written(call.func.value))
        classes = [self.script.class_behind(one) for one in made if isinstance(one, ast.Call)]
        if not classes:  # an optimizer of torch's, perhaps
            return [] if call.func.attr in STEPS else found
        methods = [m for cls in classes if cls is not None for m in self.script.all_methods(cls)]
        return [one for one in found if one in methods]

    def _given(self, function: Function) -> Iterator[str]:
        """The parameters that all calls give a counter for."""
        for name in self.script.parameters(function):
            given = self.script.given_for(function, name)
            is_known = given and len(given) == len(calls_of(self.script, function))
            if is_known and all(self._is_counter(value) for value, _ in given):
                yield name

    def _is_counter(self, node: ast.expr) -> bool:
        """`i`, `i + 1`, `epoch * batches + i`"""
        return any(written(one) in self._names[self.script.frame(one)] for one in _terms(node))


def _terms(node: ast.expr) -> Iterator[ast.expr]:
    """What is added up: `epoch * n` and `i` of `epoch * n + i`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield from _terms(node.left)
        yield from _terms(node.right)
    else:
        yield node


def _counted(node: ast.AST) -> str:
    """`n` of `n += 1` and of `n = n + 1`"""
    if isinstance(node, ast.AugAssign):
        is_one = (
            isinstance(node.op, ast.Add) and isinstance(node.value, ast.Constant) and node.value.value == 1
        )
        return written(node.target) if is_one else ""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        text = written(node.targets[0])
        return text if ast.unparse(node.value) == f"{text} + 1" else ""
    return ""


def rates_of(script: Script) -> set[Function]:
    """What computes a rate for a schedule, `LambdaLR(optimizer, rate)`, which may count the steps of all."""
    calls = (c for c in script.calls if "lr_scheduler" in script.dotted(c.func))
    given = (one for c in calls for one in (*c.args, *(k.value for k in c.keywords)))
    return {f for one in given if isinstance(one, ast.Name) for f in script.functions(one.id)}


def calls_of(script: Script, function: Function) -> list[ast.Call]:
    """The calls of a function, without those of a method of its name on an object, `model.train()` beside a function `train`, and
    of what is given a variable of that name."""
    calls, name = script.callers(function), function.name
    if script.class_of(function) is not None:
        return calls
    calls = [c for c in calls if not is_method(c, name) or script.is_imported(c.func)]
    frames = [(c, script.frame(c)) for c in calls]
    return [
        c
        for c, f in frames
        if script.last(c.func) == name or not (is_function_frame(f) and script.binds(f, name))
    ]


def loops_of(script: Script, roles: Roles) -> dict[Loop, Data]:
    """The loops that take divided batches, each with what it reads: by itself, or by `next` in every turn."""
    found: dict[Loop, Data] = {}
    for one in roles.data:
        loop = one.loop or one.beside
        taking = [loop] if loop is not None else list(_taking(script, roles))
        for each in taking:
            if not any(isinstance(n, ast.Yield) for n in walk(each)):
                found.setdefault(each, one)
    return found


def _taking(script: Script, roles: Roles) -> Iterator[Loop]:
    """The loops around the backwards each turn of which takes a batch by `next`."""
    for call in (one.call for one in roles.backwards):
        for loop in _loops_around(script, call, _DEPTH):
            if _takes(script, [n for n in walk_all(loop.body) if isinstance(n, ast.Call)], _DEPTH):
                yield loop
                break


def _takes(script: Script, calls: list[ast.Call], depth: int) -> bool:
    """Whether some calls take the next of something, or functions of the project that they run."""
    if any(last_name(one.func) == "next" for one in calls):
        return True
    functions = [f for one in calls for f in script.run_by(one)] if depth else []
    return any(_takes(script, script.calls_in(one), depth - 1) for one in dict.fromkeys(functions))


def _loops_around(script: Script, node: ast.AST, depth: int) -> Iterator[Loop]:
    yield from script.loops_around(node)
    frame = script.frame(node)
    for call in script.callers(frame) if depth and is_function_frame(frame) else ():
        yield from _loops_around(script, call, depth - 1)
