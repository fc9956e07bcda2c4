"""Which divisors count the batches of all processes: those that are known before the loader is prepared, or that nothing
but options, sizes and constants make. `len(loader)` of a prepared loader counts those of one process.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from functools import partial

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import counters_of
from crosstrain_migrate.core.reading.data import BARS, Data
from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.ranges import item_of, range_behind
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

ROUNDS = ("int", "float", "round", "max", "min", "ceil", "floor")
_MAY_BE_SHARED = re.compile(r"loader|batches|iter|dl\b", re.I)
_FIRST_SIZE = re.compile(r"\.(shape\[0\]|size\(0\)|size\(\)\[0\])$")
_BATCH = re.compile(r"batch_?size|bs$", re.I)
_DEPTH = 5


class WholeCounts:
    """Answers for one loop over data that goes through all of it."""

    def __init__(self, plan: Plan, data: Data, loop: ast.For) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.data = data
        self.loop = loop
        body = walk_all(loop.body)
        self._range = range_behind(plan.script, data.frame, data.node)
        own = names_in(loop.target) - ({"self", item_of(loop)} if self._range else {"self"})
        self.changed = own | set(map(written, stores_in(*loop.body)))
        self._breaks = [n for n in body if isinstance(n, ast.Break)]
        self._is_cut = any(isinstance(n, ast.Call) and last_name(n.func) == "islice" for n in walk(loop.iter))

    def counts_all(self, divisor: ast.expr) -> bool:
        """Whether a divisor behind the loop is made of what is the same whatever share of the batches a process has."""
        if self._is_cut or (isinstance(divisor, ast.Constant) and not self._range):
            return False
        own = map(ast.unparse, self._range.args if self._range else ())
        if ast.unparse(divisor) in own and not self._breaks and not names_in(divisor) & self.changed:
            return True  # what the range ends at
        ends = not self._breaks or (
            all(self._ends_at(one, divisor) for one in self._breaks) and self.is_of_rows(divisor)
        )
        return ends and self._is_whole(self.script.frame(divisor), divisor, 0)

    def _ends_at(self, stop: ast.Break, divisor: ast.expr) -> bool:
        """Whether a loop over all batches stops behind the last one: `if i >= batches: break`."""
        test = getattr(self.script.parent(stop), "test", None)
        return (
            isinstance(test, ast.Compare)
            and isinstance(test.ops[0], ast.GtE | ast.Eq)
            and written(test.left) in counters_of(self.loop, self.script)
            and ast.unparse(test.comparators[0]) == ast.unparse(divisor)
        )

    def is_of_rows(self, number: ast.expr) -> bool:
        """Whether a number of batches is computed from the rows that there are."""
        return self._is_share(self.script.frame(number), number, 0)

    def _is_share(self, frame: Frame, node: ast.expr, depth: int) -> bool:
        """Whether a number is that of the batches into which rows are cut: `len(rows) // size`, or that of a sampler of them."""
        node = _without_factor(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv):
            if _BATCH.search(last_name(node.right)) and self._counts_rows(frame, node.left, depth):
                return True
            return self._is_length(frame, node.left, depth)
        if isinstance(node, ast.Call) and last_name(node.func) == "len":
            return self._is_cut_by(written(node.args[0]), self.data.frame, self.data.node, depth)
        if isinstance(node, ast.Call) and last_name(node.func) in ROUNDS and len(node.args) == 1:
            return self._is_share(frame, node.args[0], depth)  # `int(len(rows) / size)`
        return self._all(self._is_share, frame, node, depth)

    def is_of_steps(self, number: ast.expr) -> bool:
        """Whether a number is that of the batches of all epochs: `len(rows) // size * epochs`."""
        return self._counts_epochs(self.script.frame(number), number, 0)

    def is_of_epochs(self, number: ast.expr) -> bool:
        """Whether a variable holds the whole number of the batches of all epochs: `epochs * len(rows) // size`."""
        return self._all(self._counts_epochs, self.script.frame(number), number, 0)

    def _counts_epochs(self, frame: Frame, node: ast.expr, depth: int) -> bool:
        rounds = isinstance(node, ast.Call) and len(node.args) == 1 and last_name(node.func) in ROUNDS
        number = node.args[0] if rounds and isinstance(node, ast.Call) else node
        parts = walk(number)
        if any(
            isinstance(getattr(n, "value", None), float) or (not rounds and isinstance(n, ast.Div))
            for n in parts
        ):
            return False
        match number:
            case ast.BinOp(ast.BinOp(left, ast.Mult(), right), ast.Div() | ast.FloorDiv(), size):
                is_cut = _BATCH.search(last_name(size)) is not None
                return is_cut and any(self._is_length(frame, one, depth) for one in (left, right))
            case ast.BinOp(left, ast.Mult(), right):
                return any(self._is_share(frame, one, depth) for one in (left, right))
        return self._all(self._counts_epochs, frame, number, depth)

    def _is_cut_by(self, sampler: str, frame: Frame, node: ast.expr, depth: int) -> bool:
        """Whether the data are a loader that is given a sampler of batches by this name."""
        if isinstance(node, ast.Call):
            return any(k.arg == "batch_sampler" and written(k.value) == sampler for k in node.keywords)
        return self._all(partial(self._is_cut_by, sampler), frame, node, depth)

    def _counts_rows(self, frame: Frame, node: ast.expr, depth: int) -> bool:
        """`loader.dataset.n`, or the first size of a tensor, which may be of anything but for what divides it."""
        if written(node).startswith(f"{written(self.data.node)}.dataset."):
            return True
        if isinstance(node, ast.Call | ast.Subscript) and _FIRST_SIZE.search(ast.unparse(node)):
            return not names_in(node) & self.changed
        return self._all(self._counts_rows, frame, node, depth)

    def _is_length(self, frame: Frame, node: ast.expr, depth: int) -> bool:
        node = _without_factor(node)
        if isinstance(node, ast.Call) and last_name(node.func) in ("max", "min") and len(node.args) == 1:
            (given,) = node.args  # `max(len(one) for one in sets)`
            return isinstance(given, ast.ListComp | ast.GeneratorExp) and self._is_length(
                frame, given.elt, depth
            )
        if isinstance(node, ast.Call) and last_name(node.func) in ("len", "__len__"):
            return not names_in(node) & self.changed  # no batch's
        if isinstance(node, ast.Subscript):  # `rows[phase]`
            return self._all(partial(self._is_table, self._is_length), frame, node.value, depth)
        return self._all(self._is_length, frame, node, depth)

    def _all(
        self, asked: Callable[[Frame, ast.expr, int], bool], frame: Frame, node: ast.expr, depth: int
    ) -> bool:
        """Whether all that a variable is bound to answers a question."""
        if depth > _DEPTH or not isinstance(node, ast.Name | ast.Attribute):
            return False
        found = self._bound_to(frame, node)
        return bool(found) and all(asked(home, value, depth + 1) for home, value in found)

    def _is_whole(self, frame: Frame, node: ast.expr, depth: int) -> bool:
        if depth > _DEPTH:
            return False
        match node:
            case ast.Constant():
                return True
            case ast.BinOp():
                return all(self._is_whole(frame, side, depth) for side in (node.left, node.right))
            case ast.UnaryOp():
                return self._is_whole(frame, node.operand, depth)
            case ast.IfExp():
                return all(self._is_whole(frame, side, depth) for side in (node.body, node.orelse))
            case ast.Call(args=[given]) if last_name(node.func) == "len":
                return self._is_whole_length(frame, node, given)
            case ast.Call(args=[_, *_]) if last_name(node.func) in ROUNDS:
                return all(self._is_whole(frame, one, depth) for one in node.args)
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return not names_in(node) & self.changed
            case ast.Subscript(slice=ast.Constant(value=str())):
                return self._is_whole_entry(node, depth)
            case ast.Subscript(
                value=ast.Name() as table
            ):  # `rows[phase]` of `rows = {p: len(data[p]) for p in phases}`
                return self._all(partial(self._is_table, self._is_whole), frame, table, depth)
            case ast.Name() | ast.Attribute():
                return self._is_whole_variable(frame, node, depth)
        return is_method(node, "size") and not names_in(node) & self.changed

    def _is_whole_length(self, frame: Frame, length: ast.Call, of: ast.expr) -> bool:
        """Whether a length is taken before its loader is prepared, or is no loader's: `len(loader.dataset)`."""
        text = written(of)
        if text.endswith(".dataset"):
            return not names_in(of) & self.changed
        anchor = self.plan.prepared.get((frame, text))
        if anchor is not None:
            return place_of(length) < place_of(anchor)
        may_be_shared = text == written(self.data.node) or _MAY_BE_SHARED.search(text) is not None
        return (self._range or not may_be_shared) and not names_in(of) & self.changed

    def _is_whole_entry(self, node: ast.Subscript, depth: int) -> bool:
        """`config["batch"]`, `settings.config["batch"]`: whether all that the project assigns to that entry is whole."""
        text = written(node)
        spelled = {text, text.partition(".")[2]} if self.script.is_imported(node) else {text}
        values = [
            (frame, value)
            for frame in self.script.frames
            for one in spelled
            for value in self.script.values(frame, one)
        ]
        return (
            bool(values)
            and not names_in(node) & self.changed
            and all(self._is_whole(home, value, depth + 1) for home, value in values)
        )

    def _is_table(
        self, asked: Callable[[Frame, ast.expr, int], bool], frame: Frame, node: ast.expr, depth: int
    ) -> bool:
        """Whether all entries of a dictionary answer a question."""
        values = node.values if isinstance(node, ast.Dict) else []
        values = [node.value] if isinstance(node, ast.DictComp) else values
        found = bool(values) and all(asked(frame, one, depth + 1) for one in values)
        return found or self._all(partial(self._is_table, asked), frame, node, depth)

    def _is_whole_variable(self, frame: Frame, node: ast.Name | ast.Attribute, depth: int) -> bool:
        text = written(node)
        if text in self.changed:
            return False
        if self._range and text == item_of(self.loop):
            return True  # the numbers that are dealt are the original's
        if isinstance(node, ast.Attribute) and not any(
            self.script.stores(f, text) for f in self.script.frames
        ):
            return True  # an option
        return self._all(self._is_whole, frame, node, depth)

    def _bound_to(self, frame: Frame, node: ast.Name | ast.Attribute) -> list[tuple[Frame, ast.expr]]:
        """All that a variable or an attribute is bound to, or given by all calls; empty where that is not known."""
        text = written(node)
        if isinstance(node, ast.Attribute):
            found = [(one, value) for one in self.script.frames for value in self.script.values(one, text)]
            stores = [store for one in self.script.frames for store in self.script.stores(one, text)]
            return found if len(found) == len(stores) else []
        is_given = text in self.script.parameters(frame) and not self.script.stores(frame, text)
        if is_given and is_function_frame(frame):
            known = [(self.script.frame(call), value) for value, call in self.script.given_for(frame, text)]
            return known if len(known) == len(self.script.callers(frame)) else []
        home = frame if self.script.binds(frame, text) else self.script.module(node)
        values = [(home, value) for value in self.script.values(home, text)]
        stores = self.script.stores(home, text)
        if not values and len(stores) == 1:
            values = self._taken_apart(stores[0])
        return values if len(values) == len(stores) else []

    def _taken_apart(self, store: ast.AST) -> list[tuple[Frame, ast.expr]]:
        """The part of what a function of the project returns: `loaders, rows = made()`."""
        statement = self.script.statement(store)
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if (
            not isinstance(target, ast.Tuple)
            or not isinstance(statement, ast.Assign)
            or store not in target.elts
        ):
            return []
        functions = self.script.functions(self.script.last(getattr(statement.value, "func", target)))
        returns = [
            (f, n.value) for f in functions for n in self.script.within(f) if isinstance(n, ast.Return)
        ]
        index = target.elts.index(store)
        return [
            (f, value.elts[index])
            for f, value in returns
            if isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        ]


def divisor(script: Script, read: ast.expr) -> ast.expr | None:
    """What a number is divided by where it is read."""
    below: ast.AST = read
    for one in script.around(read):
        match one:
            case ast.BinOp(op=ast.Div(), right=by) | ast.AugAssign(op=ast.Div(), value=by):
                return None if below is by else by
            case ast.stmt():
                return None
        below = one
    return None


def _without_factor(node: ast.expr) -> ast.expr:
    """`len(rows)` of `len(rows) * 1.0`"""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.right, ast.Constant):
        return node.left
    return node


def plan_bars(plan: Plan, data: Data) -> None:
    """A bar over the batches of a loop, `tqdm(total=len(rows) // size)`, or over their rows, ends with those of its process; so
    does one that the loop goes over, `tqdm(loader, total=len(rows) // size)`."""
    script, loop = plan.script, data.loop
    if not isinstance(loop, ast.For) or not isinstance(data.node, ast.Name) or plan.is_replaced(data.node):
        return
    if "IterableDataset" in script.text:
        return  # of which nobody may know the length
    counts = WholeCounts(plan, data, loop)
    moves = [n for n in walk_all(loop.body) if is_method(n, "update") and not n.keywords]
    steps = {written(n.func.value): n.args[0] if n.args else ast.Constant(1) for n in moves}
    steps[""] = ast.Constant(1)
    for call in (one for one in script.calls_in(data.frame) if BARS.search(last_name(one.func))):
        bars = {""} if data.node in walk(call) else script.names_of(call) & steps.keys()
        for total in [k.value for k in call.keywords if k.arg == "total" and bars]:
            step = steps[min(bars)]
            batches = f"len({data.node.id})"
            if written(total) == f"len({data.node.id}.dataset)":
                is_known = isinstance(step, ast.Name | ast.Attribute) and not names_in(step) & counts.changed
                code = f"min({{total}}, {batches} * {written(step)})" if is_known else ""
            else:
                code = f"min({{total}}, {batches})" if counts.is_of_rows(total) else ""
            if code:
                plan.replace(total, "CT201", "a pass has the batches of one process", code, total=total)
