"""Which numbers count the batches of all processes: known before a loader is prepared, or computed from the rows that there are.

A number is followed to what it is bound to, given or returned, through the whole program: variables, attributes, entries of
dictionaries, parameters, properties. `len(loader)` behind its `prepare` is one process's, and no such number.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cached_property

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import (
    Frame,
    bound_in,
    is_function_frame,
    is_method,
    names_in,
    root_of,
)
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, defaults_by_name, last_name, place_of, written
from crosstrain_migrate.syntax.walks import texts_in

from .own_counts import calls_of
from .whole_counts import ROUNDS

_BATCH = re.compile(r"batch|bs$|bsz", re.I)
_FIRST_SIZE = re.compile(r"\.(shape\[0\]|size\(0\)|size\(\)\[0\])$")
_DEPTH = 6
_MANY = 5000  # rows that are written out as a number
_Asked = Callable[[Frame, ast.expr, int], bool]


class Wholes:
    """Answers for expressions of one program, as the plan has them by now."""

    def __init__(self, plan: Plan, changed: set[str], in_place: set[tuple[Frame, str]]) -> None:
        """changed: what the loops over divided data bind, which is no number of all rows. in_place: by frame, the loaders that are
        prepared where they are iterated, and stay whole where else they are read."""
        self.plan = plan
        self.script: Script = plan.script
        self.changed = changed
        self.in_place = in_place

    def parts(self, node: ast.expr) -> list[ast.expr]:
        """The parts of a number that count all batches, each of which is to be divided: `nb` of `epoch * nb + nb - 1`."""
        match node:
            case ast.BinOp(left, ast.Div() | ast.FloorDiv(), _) if self.is_whole(node):
                return self.parts(left) if self._adds(left) else [node]
            case ast.BinOp(
                ast.BinOp(op=ast.Div() | ast.FloorDiv()) as left, ast.Add() | ast.Sub(), ast.Constant()
            ) if self.is_whole(left) and not self.is_cut_in_batches(left):
                return [node]  # `batches // 4 - 1`, which is to be no less than one
            case ast.BinOp():
                return [*self.parts(node.left), *self.parts(node.right)]
            case ast.UnaryOp():
                return [node] if self.is_whole(node) else self.parts(node.operand)
            case ast.IfExp():
                return [*self.parts(node.body), *self.parts(node.orelse)]
            case ast.BoolOp():
                return [part for one in node.values for part in self.parts(one)]
            case ast.Compare():
                return [part for one in (node.left, *node.comparators) for part in self.parts(one)]
            case ast.Call(args=[ast.BinOp(op=ast.Mult() | ast.Add() | ast.Sub()) as inner]) if (
                last_name(node.func) in ROUNDS
            ):
                return self.parts(inner)
            case ast.Call(args=[_, _, *_]) if last_name(node.func) in ("max", "min"):
                return [part for one in node.args for part in self.parts(one)]
        return [node] if self.is_whole(node) else []

    def _adds(self, node: ast.expr) -> bool:
        return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and bool(self.parts(node))

    def is_whole(self, node: ast.expr) -> bool:
        """Whether an expression is a number of batches of all processes, of one pass, a part of it or all of them."""
        return self._is_whole(self.script.frame(node), node, 0)

    def is_cut_in_batches(self, node: ast.expr) -> bool:
        """`len(rows) // size`"""
        is_share = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.FloorDiv)
        return (
            is_share
            and isinstance(node, ast.BinOp)
            and self._is_size(self.script.frame(node), node.right, 0)
            and self.is_whole(node)
        )

    def _is_whole(self, frame: Frame, node: ast.expr, depth: int) -> bool:
        if depth > _DEPTH or self.plan.is_replaced(node):
            return False
        match node:
            case ast.BinOp(left, ast.Div() | ast.FloorDiv(), right):
                if self._is_size(frame, right, depth) and self._is_of_rows(frame, left, depth):
                    return True
                if (rounded := _rounded_up(node)) is not None:
                    return self._is_whole(frame, rounded, depth)
                is_own = bool(texts_in(right) & self.changed)  # `total / step`
                return (
                    not is_own
                    and self._is_whole(frame, left, depth)
                    and not self._is_whole(frame, right, depth)
                )
            case ast.BinOp(left, ast.Mult(), right):
                return self._is_whole(frame, left, depth) != self._is_whole(frame, right, depth)
            case ast.BinOp(left, ast.Add() | ast.Sub(), ast.Constant()):
                return self._is_whole(frame, left, depth)
            case ast.UnaryOp(op=ast.USub()):
                return self._is_whole(frame, node.operand, depth)
            case ast.IfExp():
                return all(self._is_whole(frame, side, depth) for side in (node.body, node.orelse))
            case ast.BoolOp(op=ast.Or()):
                known = [one for one in node.values if not self._is_never(frame, one)]
                return bool(known) and all(self._is_whole(frame, one, depth) for one in known)
            case ast.Call(args=[given]) if last_name(node.func) == "len":
                return not self.plan.is_replaced(given) and self._is_undivided(frame, given, node, depth)
            case ast.Call() if last_name(node.func) in ROUNDS and node.args:
                return any(self._is_whole(frame, one, depth) for one in node.args)
            case ast.Call():
                return self._is_returned(self._is_whole, node, depth)
        return self._all(self._is_whole, frame, node, depth)

    # -- rows and sizes ----------------------------------------------------------------------------------------

    def _is_size(self, frame: Frame, node: ast.expr, depth: int) -> bool:
        """Whether rows are cut into batches of this size: what a loader is given as its `batch_size`, or named so."""
        if isinstance(node, ast.Constant):
            return ast.unparse(node) in self._sizes
        if _BATCH.search(_name_of(node)) is not None or ast.unparse(node) in self._sizes:
            return True
        return depth < _DEPTH and self._all(self._is_size, frame, node, depth)

    @cached_property
    def _sizes(self) -> set[str]:
        calls = self.script.calls
        given = [k.value for call in calls for k in call.keywords if k.arg == "batch_size"]
        given += [c.args[1] for c in calls if self.script.last(c.func) == "DataLoader" and len(c.args) > 1]
        return {ast.unparse(one) for one in given}

    def _is_of_rows(self, frame: Frame, node: ast.expr, depth: int) -> bool:
        """Whether a number is that of rows: a length, a first size, many, or what is computed from these."""
        if depth > _DEPTH or self.plan.is_replaced(node):
            return False
        match node:
            case ast.Constant(value=int(many)):
                return many >= _MANY
            case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult(), right):
                return any(self._is_of_rows(frame, one, depth) for one in (left, right))
            case ast.BinOp(left, ast.Div() | ast.FloorDiv(), ast.Constant()):
                return self._is_of_rows(frame, left, depth)
            case ast.UnaryOp():
                return self._is_of_rows(frame, node.operand, depth)
            case ast.ListComp() | ast.GeneratorExp():
                return self._is_of_rows(frame, node.elt, depth)  # `max(len(one) for one in sets)`
            case ast.Call(args=[given]) if last_name(node.func) == "len":
                names = {root_of(given), written(given)}
                return not names & self.changed and not self._is_loader(frame, given, depth)
            case ast.Call() if last_name(node.func) in ROUNDS and node.args:
                return any(self._is_of_rows(frame, one, depth) for one in node.args)
            case ast.Call() | ast.Subscript() if _FIRST_SIZE.search(ast.unparse(node)):
                return not names_in(node) & self.changed
            case ast.Call():
                return is_method(node, "__len__") or self._is_returned(self._is_of_rows, node, depth)
        if ".dataset." in written(node):
            return True
        is_batch = _BATCH.search(_name_of(node)) is not None
        return not is_batch and self._all(self._is_of_rows, frame, node, depth)

    # -- loaders -----------------------------------------------------------------------------------------------

    def _is_undivided(self, frame: Frame, loader: ast.expr, at: ast.AST, depth: int) -> bool:
        """Whether something is a loader that is not prepared yet where it is asked for its length."""
        if depth > _DEPTH or self.plan.is_replaced(loader):
            return False
        text = written(loader)
        if text in self._samplers or (frame, text) in self.in_place:
            return True
        is_own = not isinstance(loader, ast.Name) or self.script.binds(frame, text)
        home = frame if is_own else self.script.module(loader)
        if (anchor := self.plan.prepared.get((home, text))) is not None:
            return home is frame and place_of(at) < place_of(anchor)
        if isinstance(loader, ast.Call):
            if self.script.last(loader.func) == "DataLoader":
                return True
            return self._is_returned(lambda f, v, d: self._is_undivided(f, v, v, d), loader, depth)
        if isinstance(loader, ast.Attribute):
            if text.startswith("self.") and self._is_prepared_later(frame, text):
                return True
            if any(loader.attr == one.rpartition(".")[2] for _, one in self.plan.prepared):
                return False
        return self._all(lambda f, v, d: self._is_undivided(f, v, v, d), frame, loader, depth)

    @cached_property
    def _samplers(self) -> set[str]:
        """What loaders are given as samplers of batches, which stay whole."""
        given = (k.value for call in self.script.calls for k in call.keywords if k.arg == "batch_sampler")
        return set(map(written, given))

    def _is_loader(self, frame: Frame, node: ast.expr, depth: int) -> bool:
        return (frame, written(node)) in self.plan.prepared or self._is_undivided(frame, node, node, depth)

    def _is_prepared_later(self, frame: Frame, text: str) -> bool:
        """Whether another method than `__init__`, which asks, prepares an attribute."""
        places = [
            home for home, one in self.plan.prepared if one == text and isinstance(home, ast.FunctionDef)
        ]
        cls = self.script.class_of(frame)
        is_init = is_function_frame(frame) and frame.name == "__init__"
        return is_init and bool(places) and all(self.script.class_of(one) is cls for one in places)

    # -- what a number comes from ------------------------------------------------------------------------------

    def _all(self, asked: _Asked, frame: Frame, node: ast.expr, depth: int) -> bool:
        """Whether all that a variable, an attribute or an entry is bound to, or given, answers a question."""
        found = (
            self.known_sources(frame, node)
            if isinstance(node, ast.Name | ast.Attribute | ast.Subscript)
            else []
        )
        return bool(found) and all(
            value is not None and asked(home, value, depth + 1) for home, value in found
        )

    def _is_never(self, frame: Frame, value: ast.expr | None) -> bool:
        """Whether a value is that of a parameter which every call leaves at None: `length` of `def __init__(self, length=None)`."""
        if not isinstance(value, ast.Name) or not is_function_frame(frame):
            return False
        default = defaults_by_name(frame.args).get(value.id)
        given = [one for one, _ in self.script.given_for(frame, value.id)]
        is_none = isinstance(default, ast.Constant) and default.value is None
        return is_none and all(isinstance(one, ast.Constant) and one.value is None for one in given)

    def known_sources(self, frame: Frame, node: ast.expr) -> list[tuple[Frame, ast.expr | None]]:
        """What a variable may be bound to, without parameters that nobody gives."""
        return [one for one in self.sources(frame, node) if not self._is_never(*one)]

    def sources(self, frame: Frame, node: ast.expr) -> Iterator[tuple[Frame, ast.expr | None]]:
        """All that a variable is bound to, or given by its calls; None stands for what is not known."""
        if isinstance(node, ast.Attribute):
            yield from self._of_attribute(frame, node)
        elif isinstance(node, ast.Subscript):
            yield from self._of_entry(frame, node)
        elif isinstance(node, ast.Name):
            yield from self._of_name(frame, node)

    def _of_name(self, frame: Frame, node: ast.Name) -> Iterator[tuple[Frame, ast.expr | None]]:
        text, script = node.id, self.script
        home = frame if script.binds(frame, text) else script.module(node)
        stores = script.stores(home, text)
        if is_function_frame(home) and text in script.parameters(home) and not stores:
            given = script.given_for(home, text)
            yield from ((script.frame(call), value) for value, call in given)
            if len(given) < len(calls_of(script, home)):
                yield home, None
            return
        values = script.values(home, text)
        yield from ((home, value) for value in values)
        if len(values) < len(stores):
            taken = [part for store in stores for part in self._taken_apart(store)]
            yield from taken
            if len(values) + len(taken) < len(stores):
                yield home, None

    def _taken_apart(self, store: ast.AST) -> list[tuple[Frame, ast.expr | None]]:
        """The part of what a function of the project returns: `loader, steps = made()`."""
        target, bound = self.script.parent(store), self.script.statement(store)
        call = bound.value if isinstance(bound, ast.Assign) and target in bound.targets else None
        if not isinstance(call, ast.Call) or not isinstance(target, ast.Tuple):
            return []
        index = next(n for n, one in enumerate(target.elts) if one is store)
        returned = [(f, value) for f in self.script.run_by(call) for value in self.script.returned(f)]
        if len(returned) != 1:
            return []
        function, value = returned[0]
        is_same = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
        return [(function, value.elts[index])] if is_same and isinstance(value, ast.Tuple) else []

    def _of_attribute(self, frame: Frame, node: ast.Attribute) -> Iterator[tuple[Frame, ast.expr | None]]:
        """What a class binds its own attribute to, or anything of the program one of this name, and what properties return."""
        own = self.holders(frame, node)
        yield from ((home, value) for home, value in self._attributes[node.attr] if not own or home in own)
        for function in self._properties.get(node.attr, ()):
            yield from ((function, value) for value in self.script.returned(function))

    def holders(self, frame: Frame, node: ast.Attribute) -> list[Function]:
        """The methods of a class that binds an attribute of its own; empty where the class does not, or it is another object's."""
        if not is_of_self(node):
            return []
        methods = self.script.all_methods(self.script.class_of(frame))
        return methods if any(home in methods for home, _ in self._attributes[node.attr]) else []

    def is_product(self, frame: Frame, node: ast.expr, depth: int = 0) -> bool:
        """Whether a variable holds a number that is computed from others, `all = epochs * steps`: a share of each of these is
        rounded, and the share of the product may be less."""
        if depth > _DEPTH:
            return True
        values = [(home, value) for home, value in self.known_sources(frame, node) if value is not None]
        return any(
            bool(self.parts(value)) and self.parts(value) != [value]
            if not _is_variable(value)
            else self.is_product(home, value, depth + 1)
            for home, value in values
        )

    def drops(self, frame: Frame, loader: ast.expr, depth: int = 0) -> str:
        """What says whether a loader drops an incomplete last batch, `True` or its own attribute; empty where nobody knows."""
        if isinstance(loader, ast.Call) and self.script.last(loader.func) == "DataLoader":
            told = [k.value for k in loader.keywords if k.arg == "drop_last"]
            return ast.unparse(told[0]) if told else "False"
        found: list[tuple[Frame, ast.expr | None]] = list(self.sources(frame, loader))
        if isinstance(loader, ast.Call):
            found = [(f, v) for f in self.script.run_by(loader) for v in self.script.returned(f)]
        said = {self.drops(f, v, depth + 1) if v is not None and depth < _DEPTH else "" for f, v in found}
        if "" in said or not said or said == {"False"}:
            return "" if not depth else min(said, default="")
        return "True" if said == {"True"} else f"{written(loader)}.drop_last"

    def is_shifted(self, frame: Frame, node: ast.expr, depth: int = 0) -> bool:
        """Whether a variable holds a number with something added, `last = steps - 1`, whose share is another one."""
        if depth > _DEPTH:
            return True
        if isinstance(node, ast.BinOp):
            return bool(depth) and isinstance(node.op, ast.Add | ast.Sub)
        return any(
            value is None or self.is_shifted(home, value, depth + 1)
            for home, value in self.known_sources(frame, node)
        )

    def is_property(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Attribute) and node.attr in self._properties

    @cached_property
    def _properties(self) -> dict[str, list[ast.FunctionDef]]:
        found: dict[str, list[ast.FunctionDef]] = defaultdict(list)
        for function in self.script.table.each(ast.FunctionDef):
            if any(last_name(one) in ("property", "cached_property") for one in function.decorator_list):
                found[function.name].append(function)
        return found

    @cached_property
    def _attributes(self) -> dict[str, list[tuple[Frame, ast.expr | None]]]:
        """By the name of an attribute, what it is bound to, or None, at each place that binds it."""
        values: dict[ast.AST, ast.expr] = {}
        for node in self.script.table.each(ast.Assign, ast.AnnAssign, ast.withitem):
            values |= dict(bound_in(node))
        found: dict[str, list[tuple[Frame, ast.expr | None]]] = defaultdict(list)
        for one in self.script.table.each(ast.Attribute):
            if not isinstance(one.ctx, ast.Load) and self.script.is_reached(one):
                taken = [] if one in values else self._taken_apart(one)
                found[one.attr] += taken or [(self.script.frame(one), values.get(one))]
        return found

    def _of_entry(self, frame: Frame, node: ast.Subscript) -> Iterator[tuple[Frame, ast.expr | None]]:
        """`config["steps"]`: what that entry is bound to, or has in the dictionary that the variable is bound to."""
        if not isinstance(node.slice, ast.Constant):
            return
        script, text = self.script, ast.unparse(node)
        homes = dict.fromkeys([*script.homes(frame, written(node.value)), script.module(node)])
        yield from ((home, value) for home in homes for value in script.values(home, text))
        for home, value in self.sources(frame, node.value):
            if isinstance(value, ast.Dict):
                keys = [getattr(key, "value", None) for key in value.keys]
                if node.slice.value in keys:
                    yield home, value.values[keys.index(node.slice.value)]

    def _is_returned(self, asked: _Asked, call: ast.Call, depth: int) -> bool:
        """Whether all that a call of a function of the project returns answers a question."""
        if self.script.class_made(call) is not None or depth > _DEPTH:
            return False
        returned = [(f, value) for f in self.script.run_by(call) for value in self.script.returned(f)]
        return bool(returned) and all(asked(f, value, depth + 1) for f, value in returned)


def _rounded_up(node: ast.BinOp) -> ast.expr | None:
    """`n` of `(n + k - 1) // k`"""
    match node:
        case ast.BinOp(
            ast.BinOp(ast.BinOp(of, ast.Add(), more), ast.Sub(), ast.Constant(value=1)), ast.FloorDiv(), by
        ):
            return of if ast.unparse(more) == ast.unparse(by) else None
    return None


def _is_variable(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute | ast.Subscript)


def is_of_self(node: ast.Attribute) -> bool:
    return written(node.value) == "self"


def _name_of(node: ast.expr) -> str:
    """`batch_size` of `args.batch_size` and of `config["batch_size"]`"""
    if isinstance(node, ast.Subscript):
        return str(getattr(node.slice, "value", ""))
    return last_name(node)
