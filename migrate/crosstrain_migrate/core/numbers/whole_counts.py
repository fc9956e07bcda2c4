"""Which divisors count the batches of all processes: those that are known before the loader is prepared, or that nothing
but options, sizes and constants make. `len(loader)` of a prepared loader counts those of one process.
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.ranges import is_range, item_of
from crosstrain_migrate.core.reading.script import Frame, Script, is_function_frame, is_method, names_in
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import walk

_ROUNDS = ("int", "float", "round", "max", "min", "ceil", "floor")
_MAY_BE_SHARED = re.compile(r"loader|batches|iter|dl\b", re.I)
_DEPTH = 5


class WholeCounts:
    """Answers for one loop over data that goes through all of it."""

    def __init__(self, plan: Plan, data: Data, loop: ast.For) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.data = data
        self.loop = loop
        body = [node for statement in loop.body for node in walk(statement)]
        self._is_range = is_range(data.node)
        own = names_in(loop.target) - ({item_of(loop)} if self._is_range else set())
        self._changed = own | {
            written(n)
            for n in body
            if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store)
        }
        self._breaks_off = any(isinstance(n, ast.Break) for n in body) or any(
            isinstance(n, ast.Call) and last_name(n.func) == "islice" for n in walk(loop.iter)
        )

    def counts_all(self, divisor: ast.expr) -> bool:
        """Whether a divisor behind the loop is made of what is the same whatever share of the batches a process has."""
        if self._breaks_off or (isinstance(divisor, ast.Constant) and not self._is_range):
            return False
        return self._is_whole(self.script.frame(divisor), divisor, 0)

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
            case ast.Call(args=[given]) if last_name(node.func) == "len":
                return self._is_whole_length(frame, node, given)
            case ast.Call(args=[_, *_]) if last_name(node.func) in _ROUNDS:
                return all(self._is_whole(frame, one, depth) for one in node.args)
            case ast.Subscript(value=ast.Attribute(attr="shape")):
                return not names_in(node) & self._changed
            case ast.Subscript(slice=ast.Constant(value=str())):
                return self._is_whole_entry(node, depth)
            case ast.Name() | ast.Attribute():
                return self._is_whole_variable(frame, node, depth)
        return is_method(node, "size") and not names_in(node) & self._changed

    def _is_whole_length(self, frame: Frame, length: ast.Call, of: ast.expr) -> bool:
        """Whether a length is taken before its loader is prepared, or is no loader's."""
        text = written(of)
        anchor = self.plan.prepared.get((frame, text))
        if anchor is not None:
            return place_of(length) < place_of(anchor)
        may_be_shared = text == written(self.data.node) or _MAY_BE_SHARED.search(text) is not None
        return (self._is_range or not may_be_shared) and not names_in(of) & self._changed

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
        return bool(values) and not names_in(node) & self._changed and self._all_whole(values, depth)

    def _is_whole_variable(self, frame: Frame, node: ast.Name | ast.Attribute, depth: int) -> bool:
        text = written(node)
        if text in self._changed:
            return False
        if self._is_range and text == item_of(self.loop):
            return True  # the numbers that are dealt are the original's
        if isinstance(node, ast.Attribute):
            found = [(one, value) for one in self.script.frames for value in self.script.values(one, text)]
            stores = [store for one in self.script.frames for store in self.script.stores(one, text)]
            return len(found) == len(stores) and self._all_whole(found, depth)
        is_given = text in self.script.parameters(frame) and not self.script.stores(frame, text)
        if is_given and is_function_frame(frame):
            calls = self.script.callers(frame)
            given = [(self.script.frame(c), self.script.argument_for(c, frame, text)) for c in calls]
            known = [(home, value) for home, value in given if value is not None]
            return bool(calls) and len(known) == len(calls) and self._all_whole(known, depth)
        home = frame if self.script.binds(frame, text) else self.script.module(node)
        values = [(home, value) for value in self.script.values(home, text)]
        return len(values) == 1 and self._all_whole(values, depth)

    def _all_whole(self, values: list[tuple[Frame, ast.expr]], depth: int) -> bool:
        return all(self._is_whole(home, value, depth + 1) for home, value in values)
