"""CT602 by use: what leaves a training step as a number, its losses and what is made of them, is the main process's own unless it
was reduced: what is printed, logged, kept for others, returned, or read behind the loop."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from typing import NamedTuple, TypeGuard

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.core.training.losses import parts_of, trained_loss
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import stores_in, walk

from .accumulators import CLOCK, METERS, Pass
from .changes import Change
from .training_numbers import LOCAL, REDUCE, RULE, pass_over

_VARIABLES = (ast.Name, ast.Attribute)
# Calls that train with what they are given, and a bar's, whose text may be a share.
_SILENT = re.compile(r"backward|step|zero_grad|clip|scale$|set_(postfix|description)", re.I)
_SHOWS = re.compile(r"(^|\.)(print|pprint|info|debug|warning|write|echo|add_scalars?|log\w*|report)$")
_DEPTH = 4  # functions that hand on what another one returned


def note_running_numbers(plan: Plan, roles: Roles) -> None:
    """Says, once for a script, that numbers which leave the steps of its training are the main process's own."""
    for place in Leaving(plan, roles).places():
        plan.note(RULE, place, LOCAL, REDUCE)


class _Region(NamedTuple):
    """Code that runs in each step, and what in it is known to be a step's own."""

    frame: Frame
    around: ast.AST  # the loop of the steps, or the function of one step
    names: frozenset[str]
    calls: frozenset[ast.expr]  # of functions that return it


class Leaving:
    """Follows a step's own numbers, from the loss and what is read out of tensors, to where they leave the step."""

    def __init__(self, plan: Plan, roles: Roles) -> None:
        self.plan = plan
        self.script: Script = plan.script
        self.roles = roles
        passes = ((pass_over(self.script, roles, data), data) for data in roles.data)
        self._loops = {loop: data for loop, data in passes if isinstance(loop, ast.For)}

    def places(self) -> Iterator[ast.AST]:
        """The loops, and the passes outside of any, out of which a number comes."""
        seen = set[_Region]()
        work = [_Region(d.frame, loop, frozenset(), frozenset()) for loop, d in self._loops.items()]
        losses = [(b.call, trained_loss(self.script, b)) for b in self.roles.backwards]
        for call, loss in losses:
            parts = parts_of(self.script, self.script.frame(call), loss)
            work.append(self._region(call, frozenset({*parts, _variable(loss)} - {""})))
        makers = [*self._makers(losses)]
        work += makers
        for _ in range(_DEPTH):
            regions, work = [one for one in dict.fromkeys(work) if one not in seen], []
            seen.update(regions)
            for one in regions:
                own = self._own(one)
                if self._is_told(one, own) or self._is_kept(one, own) or self._is_left(one, own):
                    is_loop = isinstance(one.around, ast.For | ast.While)
                    calls = [b.call for b in self.roles.backwards if b.frame is one.frame]
                    yield one.around if is_loop else next(iter([*calls, *one.calls]), one.around)
                work += self._callers(one, own) if one not in makers else []

    # -- where -------------------------------------------------------------------------------------------------

    def _region(
        self, node: ast.AST, names: frozenset[str] = frozenset(), calls: frozenset[ast.expr] = frozenset()
    ) -> _Region:
        frame, loops = self.script.frame(node), self.script.loops_around(node)
        around = next((one for one in loops if one in self._loops), None) or next(iter(loops), frame)
        return _Region(frame, around, names, calls)

    def _makers(self, losses: list[tuple[ast.Call, ast.expr]]) -> Iterator[_Region]:
        """What the project's objects do that make a loss, when they are called or by a method of theirs, `meter.loss(x, y)`."""
        frames = ((self.script.frame(call), _variable(loss)) for call, loss in losses)
        made = dict.fromkeys(v for frame, loss in frames for v in self.script.values(frame, loss))
        called = [f for name in ("forward", "__call__") for f in self.script.functions(name)]
        methods = [f for value in made for f in self.script.functions_of(value) if self.script.class_of(f)]
        for one in dict.fromkeys([*called, *methods]):
            if made.keys() & {*self.script.callers(one)}:
                names = map(_variable, self.script.returned(one) if one in methods else ())
                yield _Region(one, one, frozenset(names) - {""}, frozenset())

    def _callers(self, one: _Region, own: set[str]) -> list[_Region]:
        """The code that takes what a function of the step returns, or that gave it its loss."""
        if not is_function_frame(one.frame):
            return []
        calls = self.script.callers(one.frame)
        if one.frame.name == "forward":  # which is no other network's that is called within one
            calls = [c for c in calls if getattr(self.script.frame(c), "name", "") != "forward"]
        given = ((c, self.script.argument_for(c, one.frame, name)) for c in calls for name in one.names)
        is_step = one.around is one.frame  # and its caller may add rewards up around it
        found = [self._region(c) for c in calls if is_step and self.script.loops_around(c)]
        found += [self._region(c, frozenset({_variable(loss)})) for c, loss in given if _variable(loss)]
        behind = own - self._grown(one)
        returned = [n for n in self.script.within(one.frame) if isinstance(n, ast.Return) and n.value]
        if (is_step and returned) or any(
            self._tells(one, own if self._is_in(one, n) else behind, n) for n in returned
        ):
            taken = (call for call in calls if not is_statement_call(self.script, call))
            found += [self._region(call, calls=frozenset({call})) for call in taken]
        return found

    def _is_in(self, one: _Region, node: ast.AST) -> bool:
        return self.script.table.is_inside(node, one.around)

    # -- what --------------------------------------------------------------------------------------------------

    def _own(self, one: _Region) -> set[str]:
        """The variables that hold what is a step's own, or grow with it: not counters and clocks."""
        inside = [n for n in self.script.within(one.frame) if self._is_in(one, n)]
        bound = [pair for node in inside for pair in _bindings(self.script, node)]
        own = one.names | self._grown(one) | {*_beside(inside, one.names)}
        own |= {written(n.target) for n in inside if _adds(n)}
        while found := {t for value, t in bound if t not in own and self._tells(one, own, value)}:
            own |= found
        return {*own}

    def _grown(self, one: _Region) -> set[str]:
        """The sums, lists and meters of a loop over data: behind it they are reduced, or noted, by themselves."""
        if not isinstance(one.around, ast.For) or one.around not in self._loops:
            return set()
        found = Pass(self.script, one.frame, one.around)
        told = [n for n in walk(one.around) if is_method(n, "append", *METERS) and _is_number(*n.args)]
        told = [
            n
            for n in told
            if n.func.attr == "append"
            or found.is_metric(written(n.func.value))
            or found.is_meter(written(n.func.value), n.func.attr)
        ]
        changes = found.changes().items()
        sums = {text for text, made in changes if any(kind is Change.SUM and _adds(n) for kind, n in made)}
        return sums | {written(_root(n.func.value)) for n in told if is_statement_call(self.script, n)}

    def _tells(self, one: _Region, own: Collection[str], value: ast.AST) -> bool:
        """Whether an expression tells what is a step's own, and nothing reduces it."""
        work = [value]
        while work:
            node = work.pop()
            if self.plan.is_replaced(node) or isinstance(node, ast.Compare | ast.Lambda):
                continue
            if node in one.calls or (isinstance(node, _VARIABLES) and written(node) in own):
                return True
            if self._is_in(one, node) and (is_method(node, "item") or self._gives_item(one, node)):
                return True
            work += ast.iter_child_nodes(node)
        return False

    def _gives_item(self, one: _Region, node: ast.AST) -> bool:
        """Whether a function of the project is given something of this step, and returns a number that it reads out of a tensor:
        `accuracy(outputs, labels)`."""
        given = map(written, node.args) if isinstance(node, ast.Call) else ()
        if not any(self._is_in(one, n) for text in given for n in self.script.stores(one.frame, text)):
            return False
        returned = [
            v
            for f in self.script.functions_of(node)
            if not self.script.class_of(f)
            for v in self.script.returned(f)
        ]
        return any(is_method(n, "item") for value in returned for n in walk(value))

    # -- how it leaves -----------------------------------------------------------------------------------------

    def _is_told(self, one: _Region, own: set[str]) -> bool:
        """Whether a call of the step is given what is its own, or shows an object that was."""
        for call in self.script.calls_in(one.frame):
            if not self._is_in(one, call) or not is_statement_call(self.script, call):
                continue
            if _SILENT.search(written(call.func)) or _held(self.script, call) is not None:
                continue
            given = [*call.args, *(k.value for k in call.keywords), *self._object_shown(call)]
            if any(self._tells(one, own, argument) for argument in given):
                return True
        return False

    def _object_shown(self, call: ast.Call) -> list[ast.expr]:
        """The object whose method prints, and what it was made of: `board.display(i)` of `board = Board(meter)`."""
        functions = self.script.functions(self.script.last(call.func))
        called = (n for f in functions for n in self.script.within(f) if isinstance(n, ast.Call))
        if not isinstance(call.func, ast.Attribute) or not any(
            _SHOWS.search(written(c.func)) for c in (call, *called)
        ):
            return []
        return [call.func.value, *self.script.values(self.script.frame(call), written(call.func.value))]

    def _is_kept(self, one: _Region, own: set[str]) -> bool:
        """Whether others read where a step keeps what is its own: `self.sum += loss.item()`, `history.append(loss.item())`."""
        kept = {text for text in own if text.startswith("self.")} - self._grown(one)
        for node in (n for n in self.script.within(one.frame) if self._is_in(one, n)):
            kept |= {text for value, text in _bindings(self.script, node) if self._tells(one, own, value)}
        return any(self._is_of_others(one.frame, text) for text in kept)

    def _is_of_others(self, frame: Frame, text: str) -> bool:
        """Whether something belongs to an object, to a function around, or to who calls, and is read there."""
        root, _, rest = text.partition(".")
        if root == "self":
            steps = {other.frame for other in self.roles.backwards}
            others = (f for f in self.script.reached_frames if f is not frame and f not in steps)
            return any(_reads_attribute(self.script, f, rest.partition(".")[0]) for f in others)
        if rest and not self.script.given_for(frame, root):
            return True  # `bar.suffix = f"{loss:.3f}"`
        nodes = (n for n in self.script.within(frame) if isinstance(n, ast.Nonlocal | ast.Global))
        return root in {name for n in nodes for name in n.names} or any(
            len(self.script.reads(self.script.frame(at), f"{written(of)}.{rest}".rstrip("."))) > (not rest)
            for of, at in self.script.given_for(frame, root)
        )

    def _is_left(self, one: _Region, own: set[str]) -> bool:
        """Whether what a loop leaves in a variable is read behind it before it is bound anew; what is returned is its
        callers'."""
        if not isinstance(one.around, ast.For | ast.While):
            return False
        end = one.around.end_lineno or 0
        bound = {*map(written, stores_in(one.around))}
        if any(n.lineno > end for text in self._told(one, bound) for n in self.script.reads(one.frame, text)):
            return True
        items = (n for n in self.script.within(one.frame) if is_method(n, "item"))
        shown = bound & {
            written(n.func.value) for n in items
        }  # `part.item()` behind the loop that has made it
        for text in (own | shown) - self._grown(one):
            stores = (n for n in self.script.stores(one.frame, text) if n.lineno > end)
            later = [n.lineno for n in stores if not isinstance(self.script.parent(n), ast.AugAssign)]
            for read in self.script.reads(one.frame, text):
                statement = self.script.statement(read)
                is_behind = end < read.lineno <= min(later, default=read.lineno)
                if (
                    is_behind
                    and not isinstance(statement, ast.Return)
                    and self._tells(one, {text}, statement)
                ):
                    return True
        return False

    def _told(self, one: _Region, bound: set[str]) -> set[str]:
        """The objects of the project that keep what each step gives them: `scores.add(model(x), y)`."""
        found = set[str]()
        for call in (n for n in walk(one.around) if isinstance(n, ast.Call)):
            of = call.func.value if isinstance(call.func, ast.Attribute) else None
            given = {name for argument in call.args for name in names_in(argument)}
            if not isinstance(of, ast.Name) or not given & bound or not is_statement_call(self.script, call):
                continue
            made = map(self.script.class_made, self.script.values_anywhere(of.id))
            methods = [m for cls in made for m in self.script.methods(cls, last_name(call.func))]
            methods = [m for m in methods if m not in self.roles.frames]
            stores = (
                n
                for m in methods
                for n in self.script.within(m)
                if isinstance(n, ast.Attribute | ast.Subscript)
            )
            is_own = not self.plan.reduced_as(one.frame, of.id)
            if is_own and any(
                written(_root(n)).startswith("self.") and isinstance(n.ctx, ast.Store) for n in stores
            ):
                found.add(of.id)
        return found


def _variable(node: ast.expr | None) -> str:
    return written(node) if isinstance(node, _VARIABLES) else ""


def _bindings(script: Script, node: ast.AST) -> Iterator[tuple[ast.expr, str]]:
    """What a statement puts into which variables, lists and objects."""
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.NamedExpr):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for value in (node.value, *targets[:-1]) if node.value is not None else ():
            yield from ((value, text) for target in targets if (text := written(_root(target))))
            yield from ((value, text) for text in map(written, stores_in(*targets)))
    elif isinstance(node, ast.For):
        yield from ((node.iter, text) for text in map(written, stores_in(node.target)))
    elif isinstance(node, ast.Call) and (held := _held(script, node)) is not None:
        yield from ((given, written(_root(held))) for given in node.args)


def _beside(nodes: list[ast.AST], names: Collection[str]) -> Iterator[str]:
    """What a call gives together with a loss, `loss, parts = model(x, y)`, but for a state that it is given again."""
    for node in nodes:
        stored = {*map(written, stores_in(*node.targets))} if isinstance(node, ast.Assign) else set[str]()
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and stored.intersection(names):
            yield from stored - {written(n) for n in walk(node.value)}


def _root(node: ast.expr) -> ast.expr:
    """`losses` of `losses["train"][0]`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node


def _reads_attribute(script: Script, frame: Frame, name: str) -> bool:
    """Whether a function reads an attribute of an object, also by a name that it computes with a part of it:
    `getattr(trainer, "loss_" + kind)`."""
    nodes = list(script.within(frame))
    if any(isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and n.attr == name for n in nodes):
        return True
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    computed = (n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) == "getattr")
    return any(len(n.args) == 2 and not isinstance(n.args[1], ast.Constant) for n in computed) and any(
        text in name for text in texts if len(text) > 2
    )


def _held(script: Script, call: ast.Call) -> ast.expr | None:
    """The list or the meter that a call only tells a number: `losses.append(x)`, `meter.update(x)`, `average(x)`."""
    if not is_statement_call(script, call):
        return None
    if is_method(call, "append", *METERS):
        return call.func.value
    made = script.values(script.frame(call), written(call.func))
    return call.func if any(script.class_made(value) is not None for value in made) else None


def _adds(node: ast.AST) -> TypeGuard[ast.AugAssign]:
    return isinstance(node, ast.AugAssign) and _is_number(node.value)


def _is_number(*given: ast.expr) -> bool:
    """Whether what is added is no constant and no time."""
    return not all(isinstance(one, ast.Constant) for one in given) and not any(
        CLOCK.search(ast.unparse(one)) for one in given
    )
