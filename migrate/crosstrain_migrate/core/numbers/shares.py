"""CT201 by use: a number of all processes' batches where it meets one process's own count of them.

Each process sees its share of the batches. `step % steps_per_epoch`, `i == last`, `f"{i}/{total}"` and `range(epochs * steps)`
are asked of that share, wherever in the program the number was computed; a schedule that the runtime moves by all
processes' batches goes on by the whole number.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import Any

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, Loop, is_method
from crosstrain_migrate.core.reading.ranges import is_range
from crosstrain_migrate.core.reading.roles import Roles, Stepped
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

from .own_counts import OwnCounts, loops_of, rates_of
from .whole_counts import ROUNDS
from .wholes import Wholes, is_of_self

RULE = "CT201"
WHOLE = "a number of all processes' batches stands beside one process's own count of them"
DIVIDE = "divide it: `accelerator.share(...)` of the batches of a pass"
_TELLS = ("info", "debug", "warning", "write", "log", "format", "join")
REASON = "a process counts its own share of the batches"


def plan_shares(plan: Plan, roles: Roles, accelerators: Accelerators, phases: Collection[Loop]) -> None:
    """Takes the share of one process; an evaluation that is dealt is told the numbers of all, and so is a loop that also evaluates,
    one of `phases`."""
    script, trained = plan.script, loops_of(plan.script, roles)
    trained = {loop: data for loop, data in trained.items() if loop not in phases}
    moved = [one.call for one in roles.schedulers if _is_prepared(plan, one.frame, one.text)]
    rates = rates_of(script)
    loops = {loop: OwnCounts(script, loop, data, trained, moved, rates) for loop, data in trained.items()}
    bound = {written(one) for loop in trained for one in stores_in(loop)} - {"self"}
    here = [(one.frame, written(one.node)) for one in roles.data if plan.is_replaced(one.node)]
    in_place = {(home, text) for frame, text in here for home in script.homes(frame, text)}
    wholes = Wholes(plan, bound | {name for one in loops.values() for name in one.names}, in_place)
    said = {wholes.drops(one.frame, one.node) for one in roles.data}
    drops = "True" if said == {"True"} else ""
    shares = Shares(plan, wholes, accelerators, drops)
    for loop, counts in loops.items():
        for read in counts.reads():
            shares.beside(read, loop)
        shares.of(counts.starts())
        shares.of(by for text, by in counts.sums() if plan.reduced_as(counts.frame, text) in ("", "mean"))
        if trained[loop].loop is not loop:
            shares.turns(loop)
        shares.bars(loop)
    for one in roles.schedulers:
        if trained and one.call not in moved:
            shares.schedule(one)
    shares.beside_own_lengths()
    shares.within = set(trained).union(*(one.called for one in loops.values()))
    shares.plan_all()


def _is_prepared(plan: Plan, frame: Frame, text: str, depth: int = 3) -> bool:
    """Whether a schedule is prepared, by this name or by that which calls give it by: `train(model, scheduler)`."""
    if any(text == one for _, one in plan.prepared):
        return True
    given = plan.script.given_for(frame, text) if depth else []
    return any(
        _is_prepared(plan, plan.script.frame(call), written(value), depth - 1) for value, call in given
    )


class Shares:
    """Collects the numbers that are to be divided, and divides each where it is bound, or else where it is read."""

    def __init__(self, plan: Plan, wholes: Wholes, accelerators: Accelerators, drops: str) -> None:
        """drops: `True` where the loaders that train drop an incomplete last batch."""
        self.plan = plan
        self.script: Script = plan.script
        self.wholes = wholes
        self.accelerators = accelerators
        self.drops = drops
        self.found: dict[ast.expr, None] = {}
        self._seconds: set[ast.stmt] = set()  # what has a second number behind it
        self._own: set[ast.AST] = set()  # reads of what is divided where it is bound
        # the loops, and what they call: there nothing but counts asks for such a number
        self.within: set[ast.AST] = set()
        self._harmless: set[ast.expr] = set()  # reads that go with either number

    def of(self, values: Iterable[ast.expr]) -> None:
        """What a count begins at, the batches of one process of the epochs before, and what divides a sum over its batches."""
        self._add(values)

    def _add(self, nodes: Iterable[ast.expr]) -> None:
        for node in nodes:
            if not self._is_touched(node):
                self.found |= dict.fromkeys(self.wholes.parts(node))

    def _is_touched(self, node: ast.AST) -> bool:
        return any(map(self.plan.is_replaced, walk(node)))

    # -- where they meet ---------------------------------------------------------------------------------------

    def beside(self, read: ast.expr, loop: Loop) -> None:
        """What one expression computes or compares with a count, and what is shown in one text or call with it; the loop itself
        ends before `if i >= batches: break` does."""
        top: ast.expr = read
        for one in self.script.around(read):
            if (isinstance(one, ast.BinOp) and not _is_text(one)) or isinstance(
                one, ast.Compare | ast.UnaryOp
            ):
                top = one
            elif not (isinstance(one, ast.Call) and last_name(one.func) in ROUNDS):
                break
        if isinstance(top, ast.Compare) and self._is_harmless_end(top, loop):
            self._harmless.update(n for n in walk(top) if isinstance(n, ast.expr))
            return
        self._add([top])
        self._add(self._shown_with(top))

    def _is_harmless_end(self, test: ast.Compare, loop: Loop) -> bool:
        block = self.script.parent(test)
        if (
            not isinstance(block, ast.If)
            or not isinstance(block.body[-1], ast.Break)
            or isinstance(loop, ast.While)
        ):
            return False
        end = test.comparators[0]
        is_plain = isinstance(end, ast.Name | ast.Attribute | ast.Call) or self.wholes.is_cut_in_batches(end)
        return (
            is_plain and isinstance(test.ops[0], ast.GtE | ast.Eq) and not any(map(is_range, walk(loop.iter)))
        )

    def _shown_with(self, shown: ast.expr) -> Iterator[ast.expr]:
        """The numbers of one text, `f"{i}/{total}"`, or of one call of a library that shows something."""
        for one in self.script.around(shown):
            if isinstance(one, ast.JoinedStr):
                yield from (n.value for n in one.values if isinstance(n, ast.FormattedValue))
                return
            if isinstance(one, ast.BinOp) and _is_text(one):
                yield from one.right.elts if isinstance(one.right, ast.Tuple) else [one.right]
                return
            if isinstance(one, ast.Call):
                if is_method(one, "format") or written(one.func) == "print":
                    yield from (*one.args, *(k.value for k in one.keywords))
                return
            if not isinstance(one, ast.FormattedValue | ast.Tuple | ast.keyword | ast.expr):
                return

    def turns(self, loop: Loop) -> None:
        """`for i in range(epochs * steps): batch = next(batches)`"""
        head = loop.iter if isinstance(loop, ast.For) else None
        if head is not None:
            self._add(n.args[-1] for n in walk(head) if isinstance(n, ast.Call) and is_range(n) and n.args)

    def bars(self, loop: Loop) -> None:
        """The total of a bar that the loop moves by one with each batch."""
        for call in (n for n in walk_all(loop.body) if is_method(n, "update")):
            step = call.args[0] if call.args else None
            if call.keywords or (
                step is not None and not (isinstance(step, ast.Constant) and step.value == 1)
            ):
                continue
            for made in self._makers(self.script.frame(call), call.func.value, 2):
                self._add(k.value for k in made.keywords if k.arg == "total")
                self._add(
                    n.args[-1] for n in made.args[:1] if isinstance(n, ast.Call) and is_range(n) and n.args
                )

    def beside_own_lengths(self) -> None:
        """A number of all batches beside the length of a prepared loader: `epochs = math.ceil(steps / len(loader))`."""
        script = self.script
        for call in script.calls:
            text = written(call.args[0]) if last_name(call.func) == "len" and len(call.args) == 1 else ""
            anchor = self.plan.prepared.get((script.frame(call), text)) if text else None
            share = script.parent(call)
            divides = isinstance(share, ast.BinOp) and isinstance(share.op, ast.Div | ast.FloorDiv)
            if anchor is None or not divides or place_of(call) < place_of(anchor):
                continue
            if isinstance(share, ast.BinOp) and share.right is call:
                self._add([share.left])

    def schedule(self, stepped: Stepped) -> None:
        """What a schedule is made for that each process moves by its own steps, since these end the training."""
        held = stepped.call.func.value if isinstance(stepped.call.func, ast.Attribute) else stepped.call
        for made in self._makers(stepped.frame, held, 2):
            returned = [value for f in self.script.run_by(made) for value in self.script.returned(f)]
            for call in (n for n in (made, *returned) if isinstance(n, ast.Call)):
                if self.script.dotted(call.func).startswith(("torch.optim.lr_scheduler.", "transformers.")):
                    given = [*call.args, *(k.value for k in call.keywords)]
                    self._add(given)
                    self._add(n for one in given for n in self._asked_in(one))

    def _asked_in(self, given: ast.expr) -> list[ast.expr]:
        """What a function asks by which a schedule computes its rates: `lambda step: 1 - step / total`, or one of the project's."""
        named = self.script.functions(last_name(given)) if isinstance(given, ast.Name | ast.Attribute) else []
        nodes = walk(given) if isinstance(given, ast.Lambda) else walk_all(named)
        return [n for n in nodes if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Load)]

    def _makers(self, frame: Frame, held: ast.expr, depth: int) -> Iterator[ast.Call]:
        """The calls that make what a variable holds, or a parameter is given."""
        for home, value in self.wholes.sources(frame, held):
            if isinstance(value, ast.Call):
                yield value
            elif value is not None and depth:
                yield from self._makers(home, value, depth - 1)

    # -- where they are divided --------------------------------------------------------------------------------

    def plan_all(self) -> None:
        while self._lift():
            pass
        for node in self.found:
            if self._is_touched(node) or self.wholes.is_shifted(self.script.frame(node), node):
                continue
            if self.wholes.is_product(self.script.frame(node), node):
                self._plan_second(node)
            else:
                self.plan.replace(node, RULE, REASON, self._share(node), it=node)

    def _share(self, node: ast.expr) -> str:
        drops = self.drops
        if isinstance(node, ast.Call) and last_name(node.func) == "len" and len(node.args) == 1:
            drops = self.wholes.drops(self.script.frame(node), node.args[0])
        return self.plan.share_of(node, self.accelerators.state(node), drops)

    def _lift(self) -> bool:
        """Divides a number where it is bound, if all that reads it is beside a count, or only tells it."""
        for node in self.found:
            reads = self._all_reads(node)
            if not reads or self.wholes.is_property(node):
                continue
            if any(one not in self.found and not self._goes_with_either(one) for one in reads):
                continue
            sources = self.wholes.known_sources(self.script.frame(node), node)
            parts = [part for _, value in sources if value is not None for part in self.wholes.parts(value)]
            if len(sources) == 1 and parts and all(self._is_in_reach(one, len(reads)) for one in parts):
                self._own.update(reads)
                self.found = {one: None for one in (*self.found, *parts) if self._own.isdisjoint(walk(one))}
                return True
        return False

    def _goes_with_either(self, read: ast.expr) -> bool:
        """Whether a read only shows a number, `print("steps", total)`, ends a loop that has ended by then, or stands within a
        training loop or what that calls."""
        if read in self._harmless or not self.within.isdisjoint(self.script.around(read)):
            return True
        statement = self.script.statement(read)
        calls = [one for one in self.script.around(read) if isinstance(one, ast.Call)]
        return isinstance(statement, ast.Expr) and all(
            is_method(one, *_TELLS) or written(one.func) in ("print", "str", "len") for one in calls
        )

    def _plan_second(self, node: ast.expr) -> None:
        """A number that a schedule needs whole has a second one beside it, for the counts of a process: `own_steps = epochs *
        accelerator.share(len(loader))`."""
        sources = self.wholes.known_sources(self.script.frame(node), node)
        value = sources[0][1] if len(sources) == 1 else None
        bound = self.script.statement(value) if value is not None else None
        text = written(node)
        is_plain = (
            isinstance(bound, ast.Assign)
            and bound.value is value
            and list(map(written, bound.targets)) == [text]
        )
        own = _second(node)
        is_free = bound in self._seconds or own not in self._taken
        if value is None or not is_plain or bound is None or not is_free or self._is_touched(value):
            self.plan.note(RULE, node, WHOLE, DIVIDE)
            return
        self._seconds.add(bound)
        parts = {
            written(one): ast.parse(self._share(one).format(it=written(one)), mode="eval").body
            for one in self.wholes.parts(value)
        }
        code = ast.unparse(_Replaced(parts).visit(ast.parse(ast.unparse(value), mode="eval").body))
        self.plan.after(bound, RULE, REASON, f"{own} = {code}")
        self.plan.replace(node, RULE, REASON, own)

    @cached_property
    def _taken(self) -> set[str]:
        """Every variable, attribute and entry of the script, as they are written."""
        return {written(n) for n in self.script.table.each(ast.Name, ast.Attribute, ast.Subscript)}

    def _is_in_reach(self, part: ast.expr, reads: int) -> bool:
        """Whether the accelerator is at hand, or may be made there to spare several edits."""
        return self.accelerators.at_hand(part) or (
            reads > 1 and self.accelerators.may_be_at(part) is not None
        )

    def _all_reads(self, node: ast.expr) -> list[ast.expr]:
        """All that reads a variable or an attribute."""
        frame = self.script.frame(node)
        if isinstance(node, ast.Name):
            home: Frame = frame if self.script.binds(frame, node.id) else self.script.module(node)
            inner = [f for f in self.script.frames if not self.script.binds(f, node.id)]
            of_module = (
                [f for f in inner if self.script.module(f) is home] if isinstance(home, ast.Module) else []
            )
            return [read for f in dict.fromkeys((home, *of_module)) for read in self.script.reads(f, node.id)]
        if isinstance(node, ast.Attribute):
            nodes = (n for n in self.script.table.each(ast.Attribute) if n.attr == node.attr)
            reads: list[ast.Attribute] = [n for n in nodes if isinstance(n.ctx, ast.Load)]
            own = self.wholes.holders(frame, node)
            return [n for n in reads if not own or self.script.frame(n) in own or not is_of_self(n)]
        return []


def _second(node: ast.expr) -> str:
    """`self.own_steps` beside `self.steps`, `config["own_steps"]` beside `config["steps"]`"""
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        return f"{written(node.value)}[{'own_' + str(node.slice.value)!r}]"
    of, dot, name = written(node).rpartition(".")
    return f"{of}{dot}own_{name}"


class _Replaced(ast.NodeTransformer):
    """An expression with others for some of its parts, by how these are written."""

    def __init__(self, given: dict[str, ast.expr]) -> None:
        self.given = given

    def visit(self, node: ast.AST) -> Any:
        known = self.given.get(written(node)) if isinstance(node, ast.expr) else None
        return known if known is not None else self.generic_visit(node)


def _is_text(node: ast.BinOp) -> bool:
    """`"%d of %d" % (i, total)`"""
    left = node.left
    is_text = isinstance(left, ast.JoinedStr) or isinstance(getattr(left, "value", None), str)
    return isinstance(node.op, ast.Mod) and is_text
