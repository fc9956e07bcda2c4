"""Loops over numbers that stand for batches: `for i in range(n // size)`, whose body trains on `rows[i * size : ...]`.

A loop over epochs is none, and neither is one whose body draws its batch at random: nothing is cut by its number.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import names_stored_in, walk, walk_all

from .alike import counters_of
from .forms import RANGES, Frame, is_method, names_in, root_of
from .script import Script

_GROWS = ("append", "extend", "push", "add", "insert", "appendleft")
_TENSOR_METHODS = ("to", "cuda", "unsqueeze", "float", "long", "view", "reshape")


class Ranges:
    """Finds what is cut into batches by a loop's number."""

    def __init__(self, script: Script) -> None:
        self.script = script

    def cut(self, call: ast.Call) -> list[ast.expr]:
        """What the loop over a range cuts its batches from; empty where it cuts none."""
        loop = self._loop_over(call)
        if loop is None:
            return []
        frame = self.script.frame(loop)
        body = walk_all(loop.body)
        numbers = {*names_stored_in(loop.target), *moved_on(self.script, loop, call)}
        found = self._cut_by(body, self._computed(body, numbers), 1)
        if (number := item_of(loop)) and last_name(call.func) in RANGES:
            found += self._picked(frame, body, number, call)
        kept = self._kept(body)
        return [one for one in found if written(one) not in kept]

    def accumulates(self, call: ast.Call) -> bool:
        """Whether a loop over a range makes the parts of one step, and a range around it counts the steps: nothing steps
        within it, and the other's number cuts its batches too, `rows[(i * parts + j) * size : ...]`."""
        loop = self._loop_over(call)
        if loop is None or self.steps(walk(loop), 2):
            return False
        around = [one.iter for one in self.script.loops_around(loop) if isinstance(one, ast.For)]
        numbers = [n for n in walk_all(around) if isinstance(n, ast.Call) and is_range(n)]
        return any(map(self.cut, numbers))

    def steps(self, nodes: Iterable[ast.AST], depth: int) -> bool:
        """Whether something steps among these nodes, or in the functions that they call."""
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        return any(is_method(call, "step") for call in calls) or any(
            self.steps(self.script.within(function), depth - 1)
            for call in calls
            if depth
            for function in self.script.functions_of(call)
        )

    def _loop_over(self, call: ast.Call) -> ast.For | None:
        for one in self.script.around(call):
            if isinstance(one, ast.For):
                return one if self.script.table.is_inside(call, one.iter) or one.iter is call else None
            if isinstance(one, ast.Assign):  # `bar = tqdm(range(n))`
                names = {name for target in one.targets for name in names_in(target)}
                loops = [n for n in self.script.within(self.script.frame(one)) if isinstance(n, ast.For)]
                return next((loop for loop in loops if names_in(loop.iter) & names), None)
            if isinstance(one, ast.stmt):
                return None
        return None

    def _computed(self, body: list[ast.AST], names: set[str]) -> set[str]:
        """The numbers, and what is computed from them by assignments of plain arithmetic."""
        found = set(names)
        for _ in range(3):
            for node in body:
                if (
                    isinstance(node, ast.Assign)
                    and names_in(node.value) & found
                    and (_is_arithmetic(node.value) or self._only_counts(node.value))
                ):
                    found |= {name for target in node.targets for name in names_stored_in(target)}
        return found

    def _only_counts(self, node: ast.expr) -> bool:
        """Whether a call is of a function that only computes: `start, end = bounds(batch, len(rows), size)`."""
        called = self.script.functions_of(node)
        given = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
        inside = [one for function in called for one in self.script.within(function)]
        return (
            bool(called)
            and all(map(_is_arithmetic, given))
            and all(_is_arithmetic(one) for one in inside if isinstance(one, ast.expr))
        )

    def _cut_by(self, nodes: list[ast.AST], numbers: set[str], depth: int) -> list[ast.expr]:
        """What slices by these numbers cut, here or in a function of the project that is given one."""
        found: list[ast.expr] = []
        for node in nodes:
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
                starts = [n.lower for n in walk(node.slice) if isinstance(n, ast.Slice) and n.lower]
                if any(names_in(one) & numbers for one in starts):  # `[:n]` only shortens
                    found.append(node.value)
            elif is_method(node, "narrow") and names_in(node) & numbers:
                found.append(node.func.value)
            elif isinstance(node, ast.Call) and depth:
                found += self._cut_inside(node, numbers, depth)
        return found

    def _cut_inside(self, call: ast.Call, numbers: set[str], depth: int) -> list[ast.expr]:
        """What a function cuts by a number that it is given, in the words of its caller where it is given that too."""
        found: list[ast.expr] = []
        for function in self.script.functions_of(call):
            given = self.script.given_by(call, function)
            own = {n for n, a in given.items() if names_in(a) & numbers and _is_arithmetic(a)}
            if own:
                body = self.script.within(function)
                inner = self._cut_by(body, self._computed(body, own), depth - 1)
                found += [given.get(root_of(one), one) for one in inner]
        return found

    def _picked(self, frame: Frame, body: list[ast.AST], number: str, call: ast.Call) -> list[ast.expr]:
        """What is asked for its element of this number, where the range goes over all of its elements, or where the element is
        a batch: `x, y = rows[i]`, of which the body moves a part to a device."""
        moved = {root_of(n.func) for n in body if is_method(n, "to", "cuda")}
        bound = [n for n in body if isinstance(n, ast.Assign) and number in names_in(n.value)]
        places = {number, *names_stored_in(*(n.targets[0] for n in bound if _is_place(n.value)))}
        found = [
            node.value
            for node in body
            if isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and places & names_in(node.slice)
            and _is_place(node.slice)
            and not self._does_something(node)
        ]
        batches = [
            n.value
            for n in body
            if isinstance(n, ast.Assign) and moved & names_stored_in(*getattr(n.targets[0], "elts", ()))
        ]
        elements = [one.value for one in batches if isinstance(one, ast.Subscript)]
        return [one for one in found if one in elements or self._counts(frame, call, one)]

    def _does_something(self, element: ast.expr) -> bool:
        """Whether an element is called, or a method of it: a model, an optimizer."""
        parent = self.script.parent(element)
        if isinstance(parent, ast.Attribute):
            outer = self.script.parent(parent)
            return isinstance(outer, ast.Call) and not is_method(outer, *_TENSOR_METHODS)
        return isinstance(parent, ast.Call) and parent.func is element

    def _counts(self, frame: Frame, call: ast.Call, rows: ast.expr) -> bool:
        """Whether a range's end is the number of `rows`: their length, their shape, or the number that was made of them."""
        text = written(rows)
        ends = [*call.args, *(v for one in call.args for v in self.script.values(frame, written(one)))]
        for node in walk_all(ends):
            if isinstance(node, ast.Call) and last_name(node.func) == "len" and node.args:
                if written(node.args[0]) == text:
                    return True
            elif (
                isinstance(node, ast.Attribute)
                and node.attr in ("shape", "size")
                and written(node.value) == text
            ):
                return True
        made = [v for v in self.script.values(frame, text) if isinstance(v, ast.ListComp)]
        numbers = {
            a
            for value in made
            for g in value.generators
            if isinstance(g.iter, ast.Call)
            for a in names_in(g.iter)
        }
        return bool(numbers & {name for one in call.args for name in names_in(one)})

    def _kept(self, body: list[ast.AST]) -> set[str]:
        """The lists in which a loop keeps what it has computed: `losses` of `losses.append(...)`."""
        calls = [n for n in body if is_method(n, *_GROWS)]
        found = {written(call.func.value) for call in calls if isinstance(call.func, ast.Attribute)}
        stored = [n for n in body if isinstance(n, ast.Subscript) and not isinstance(n.ctx, ast.Load)]
        return found | {written(n.value) for n in stored}


def is_range(node: ast.AST | None) -> bool:
    """Whether the numbers of a range are dealt, and not batches."""
    return isinstance(node, ast.Call) and last_name(node.func) in (*RANGES, "trange")


def moved_on(script: Script, loop: ast.For, call: ast.expr) -> dict[str, str]:
    """The places that each turn over `range(n)` cuts at and moves on from 0, as its number says them: `at = i * size` for `at +=
    size`, and for `at = end` of `end = at + size`, or of `end += size`. Nothing skips that, nothing reads the place behind the
    loop, and it cuts at no other place that a turn leaves to the next."""
    inside, number = walk_all(loop.body), item_of(loop)
    is_plain = (
        isinstance(call, ast.Call) and is_range(call) and len(call.args) == 1 and call in walk(loop.iter)
    )
    if not (is_plain and number) or any(isinstance(n, ast.Continue) for n in inside):
        return {}
    suite = script.suite_of(loop)
    above, below = suite[: suite.index(loop)], suite[suite.index(loop) + 1 :]
    names = sorted((n for n in inside if isinstance(n, ast.Name)), key=place_of)
    stored = [n.id for n in names if isinstance(n.ctx, ast.Store)]
    cut_at = {name for n in inside if isinstance(n, ast.Slice) and n.lower for name in names_in(n.lower)}
    sums = {written(n.targets[0]): n.value for n in loop.body if isinstance(n, ast.Assign)}
    grown = [n for n in loop.body if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add)]
    sums |= {written(n.target): ast.BinOp(n.target, n.op, n.value) for n in grown}

    def is_carried(name: str) -> bool:
        """Whether a turn reads what the one before it has left."""
        first = next(n for n in names if n.id == name)
        bound = script.statement(first)
        is_set = isinstance(first.ctx, ast.Store) and not isinstance(bound, ast.AugAssign)
        return not is_set or (isinstance(bound, ast.Assign) and name in names_in(bound.value))

    def start(name: str) -> str:
        return next((ast.unparse(one) for one in reversed(above) if name in names_stored_in(one)), "")

    found: dict[str, str] = {}
    for place in sorted(cut_at & sums.keys()):
        end = written(sums[place]) if written(sums[place]) in sums else ""
        match sums.get(end, sums[place]):
            case ast.BinOp(left=ast.Name(id=of), op=ast.Add(), right=size) if of in (place, end):
                again = (n for n, one in enumerate(below) if place in names_stored_in(one))
                ends = [end] if end and is_carried(end) else []
                own = [place, *ends]
                is_alone = all(stored.count(one) == 1 for one in own)
                is_same = names_in(size).isdisjoint({*stored, number})
                behind = set(map(written, walk_all(below[: next(again, None)])))
                is_from_0 = start(place) == f"{place} = 0" and (
                    of == place or stored.index(place) < stored.index(end)
                )
                starts = [f"{end} = {ast.unparse(size)}", f"{end} = {place} + {ast.unparse(size)}"]
                if (
                    is_from_0
                    and is_alone
                    and is_same
                    and behind.isdisjoint(own)
                    and (not ends or start(end) in starts)
                ):
                    product = ast.BinOp(ast.Name(number), ast.Mult(), size)
                    found[place] = f"{place} = {ast.unparse(product)}"
                    found |= dict.fromkeys(ends, starts[1])
    return {} if any(map(is_carried, cut_at & {*stored} - found.keys())) else found


def range_behind(script: Script, frame: Frame, node: ast.expr) -> ast.Call | None:
    """The range whose numbers an iterable gives, in their order or another."""
    made = list(map(numbers_of, script.values(frame, written(node)) or [node]))
    return made[0] if all(made) else None


def numbers_of(value: ast.expr) -> ast.Call | None:
    """The range of which an expression is made: `range(n)`, or `list(range(n))`, whose numbers may be shuffled."""
    listed = ("list", "tuple", "reversed", "sorted")
    if isinstance(value, ast.Call) and last_name(value.func) in listed and value.args:
        value = value.args[0]
    return value if isinstance(value, ast.Call) and is_range(value) else None


def item_of(loop: ast.For) -> str:
    """`i` of `for i in ...` and of `for n, i in enumerate(...)`; empty for another target."""
    target = loop.target
    if isinstance(target, ast.Tuple) and len(target.elts) == 2 and counters_of(loop):
        target = target.elts[1]
    return target.id if isinstance(target, ast.Name) else ""


def _is_place(node: ast.expr) -> bool:
    """Whether an expression says which element: `n + 1`, `order[n]`, `order[n].item()`, `order[n] if mixed else n`."""
    if isinstance(node, ast.IfExp):
        return _is_place(node.body) and _is_place(node.orelse)
    if _is_arithmetic(node):
        return True
    if is_method(node, "item") or (isinstance(node, ast.Call) and written(node.func) == "int" and node.args):
        node = node.func.value if isinstance(node.func, ast.Attribute) else node.args[0]
    return isinstance(node, ast.Subscript) and _is_arithmetic(node.slice)


def _is_arithmetic(node: ast.expr) -> bool:
    """Whether an expression computes a number from numbers."""
    calls = [n for n in walk(node) if isinstance(n, ast.Call)]
    plain = all(last_name(call.func) in ("min", "max", "int", "len", "slice") for call in calls)
    elements = (n for n in walk(node) if isinstance(n, ast.Subscript))
    return plain and all(isinstance(one.slice, ast.Constant) for one in elements)  # `options["size"]`
