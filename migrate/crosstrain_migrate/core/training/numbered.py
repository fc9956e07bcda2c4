"""CT201 by use: what a training loop does by the number of its batch, or of its row.

It looks up by that, `labels[i]` in `for i, x in enumerate(loader)`: a process's own batches have other numbers than the original's,
so that each batch is dealt together with its number. Or it does something every so many of them, `if n % 4 == 0:
optimizer.step()`: a process counts its own turns, so that all take a step together, and a sum over its rows is divided by their
number, `total / (n + 1)`.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from itertools import takewhile

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import is_method, names_in
from crosstrain_migrate.core.reading.ranges import is_range
from crosstrain_migrate.core.reading.roles import STEPS, Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import names_stored_in, stores_in, walk, walk_all

from .losses import loss_of

_SCHEDULE = re.compile(
    r"schedul|anneal|linspace|logspace|cycl|warm|ramp|decay|(^|_)(lrs?|betas?|alphas?|gammas?|lambdas?|temp\w*|weights?|coefs?)(_|$)",
    re.I,
)


@dataclass(frozen=True)
class Numbered:
    """A loop over `enumerate`: the call, the batch's target, and the reads of the number that look up what is trained with."""

    call: ast.Call
    batch: ast.expr
    reads: list[ast.Name]


def numbered(script: Script, roles: Roles, data: Data) -> Numbered | None:
    """The loop over some data, where it looks up by the number of the batch what flows into the loss."""
    loop = data.loop
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Tuple) or len(loop.target.elts) != 2:
        return None
    index, batch = loop.target.elts
    around = [
        n for n in script.around(data.node) if isinstance(n, ast.Call) and script.table.is_inside(n, loop)
    ]
    call = next((n for n in around if written(n.func) == "enumerate"), None)
    if not isinstance(index, ast.Name) or call is None or len(call.args) != 1 or call.keywords:
        return None
    if _is_shuffled(script, data.node):
        return None
    inside = walk_all(loop.body)
    stored = {written(n.value) for n in inside if isinstance(n, ast.Subscript) and not _is_read(n)}
    stored |= {n.id for n in inside if isinstance(n, ast.Name) and not _is_read(n)}
    items = [n for n in inside if isinstance(n, ast.Subscript) and index.id in names_in(n.slice)]
    items = [n for n in items if not _is_of_schedule(script, loop, n)]
    if index.id in stored or any(written(one.value) in stored for one in items):
        return None  # a memory of the process's own
    trained = _flows_into_loss(script, roles, loop)
    reads = [
        n
        for one in items
        if id(one) in trained
        for n in walk(one.slice)
        if isinstance(n, ast.Name) and n.id == index.id
    ]
    return Numbered(call, batch, reads) if reads else None


def _is_of_schedule(script: Script, loop: ast.For, item: ast.Subscript) -> bool:
    """Whether an item is that of a step and not of its batch: a weight that is annealed over all steps, `beta[epoch * n + i]`,
    or one of several networks in turn."""
    around = [n for n in script.loops_around(loop) if isinstance(n, ast.For)]
    outer = {name for one in around for name in names_in(one.target)}
    parts = list(walk(item.slice))
    if outer & names_in(item.slice) or any(isinstance(n, ast.Mod) for n in parts):
        return True
    parent = script.parent(item)
    if isinstance(parent, ast.Call) and parent.func is item:
        return True
    if any(isinstance(n, ast.Slice) for n in parts):
        return False
    makers = [last_name(v.func) for v in _calls_bound(script, item.value)]
    return any(map(_SCHEDULE.search, (last_name(item.value), *makers)))


def _is_shuffled(script: Script, loader: ast.expr) -> bool:
    """Whether nothing can belong to a batch by its number: the loader draws other rows in each epoch."""
    keywords = (k for call in _calls_bound(script, loader) for k in call.keywords if k.arg == "shuffle")
    return any(isinstance(k.value, ast.Constant) and k.value.value is True for k in keywords)


def _calls_bound(script: Script, node: ast.expr) -> list[ast.Call]:
    """An expression, or what a variable of its text is bound to, where that is a call."""
    text = written(node)
    values = [node, *script.values_anywhere(text)]
    return [one for one in values if isinstance(one, ast.Call)]


def deal_with_numbers(plan: Plan, found: Numbered, accelerator: str, rule: str, reason: str) -> None:
    """Deals the batches together with their numbers, which the loop then looks up by."""
    name = plan.script.free_name("number", "batch_number", "number_of_batch")
    plan.replace(found.call, rule, reason, f"enumerate({accelerator}.prepare({{it}}))", it=found.call)
    plan.replace(found.batch, rule, reason, f"({name}, {{it}})", it=found.batch)
    for one in found.reads:
        plan.replace(one, rule, reason, name)


def is_counted(script: Script, node: ast.expr) -> bool:
    """Whether the number of batches is asked for: that of batches that are dealt with their numbers is not known."""
    counts = (c for c in script.calls if last_name(c.func) == "len" and c.args)
    return any(written(call.args[0]) == written(node) for call in counts)


def say_same_batches(plan: Plan, node: ast.expr) -> None:
    reason = "every process trains on the same data: what belongs to a batch is looked up by its number"
    plan.note("CT902", node, reason, "let the data set return it with the batch")


def _is_read(node: ast.Name | ast.Subscript) -> bool:
    return isinstance(node.ctx, ast.Load)


def _flows_into_loss(script: Script, roles: Roles, loop: ast.For) -> set[int]:
    """The nodes of a loop whose values flow into a loss that is trained, as far as assignments are followed."""
    calls = [one.call for one in roles.backwards]
    parts: list[ast.AST] = [loss_of(call) for call in calls if script.table.is_inside(call, loop)]
    trains = {one.frame for one in roles.backwards}
    for call in (n for n in walk(loop) if isinstance(n, ast.Call)):
        if trains.intersection(script.functions(last_name(call.func))):
            parts += [*call.args, *(k.value for k in call.keywords)]
    assigned = [n for n in walk(loop) if isinstance(n, ast.Assign | ast.AugAssign)]
    known: set[str] = set()
    for _ in range(len(assigned) + 1):
        known |= {written(n) for n in walk_all(parts) if isinstance(n, ast.Name | ast.Attribute)}
        new = [n for n in assigned if known & _targets(n)]
        assigned = [n for n in assigned if n not in new]
        parts += [n.value for n in new]
        if not new:
            break
    return {id(n) for n in walk_all(parts)}


def _targets(node: ast.Assign | ast.AugAssign) -> set[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return set(map(written, stores_in(*targets)))


def periods(script: Script, data: Data) -> list[ast.If]:
    """The tests of a dealt number in a loop that let all processes take a step or call a function of the project, and those that
    ask for every so many turns alone: the main process may never have a number that lets it print."""
    loop = data.loop
    if not isinstance(loop, ast.For) or not is_range(data.node) or not isinstance(loop.target, ast.Name):
        return []
    number = loop.target.id
    tests = [n for n in walk_all(loop.body) if isinstance(n, ast.If)]
    asked = [one for one in tests if number in names_in(one.test)]
    return [one for one in asked if _acts(script, one) or _may_count(data, [one])]


def turns_read(script: Script, data: Data) -> list[ast.Name]:
    """The reads of a dealt number that stand for the turns so far: in these tests and in the name of what is saved there, which
    all processes give alike, and what divides, in the loop and behind it up to what binds the name anew."""
    loop, call = data.loop, data.node
    if not isinstance(loop, ast.For) or not is_range(call) or not isinstance(loop.target, ast.Name):
        return []
    tests = periods(script, data)
    number, places = loop.target.id, list[ast.AST](one.test for one in tests)
    nodes: list[ast.AST] = []
    if isinstance(call, ast.Call) and len(call.args) == 1 and not call.keywords:
        saving = [s for one in tests if _saves(one) for s in one.body]
        places += [s for s in saving if isinstance(s, ast.Assign) or _is_saving(s)]
        suite = script.suite_of(loop)
        behind = takewhile(lambda one: number not in names_stored_in(one), suite[suite.index(loop) + 1 :])
        nodes = walk_all((*loop.body, *behind))
    for node in nodes:
        match node:
            case ast.BinOp(op=ast.Div(), right=by) | ast.AugAssign(op=ast.Div(), value=by):
                if names_in(by) == {number} and _is_plain(by):
                    places.append(by)
    reads = [n for n in walk_all(places) if isinstance(n, ast.Name) and n.id == number]
    return [n for n in reads if not any(isinstance(one, ast.Subscript) for one in script.around(n))]


def _is_plain(node: ast.expr) -> bool:
    """`n`, `n + 1`"""
    match node:
        case ast.Name() | ast.BinOp(op=ast.Add(), right=ast.Constant()):
            return True
    return False


def _acts(script: Script, test: ast.If) -> bool:
    calls = _calls(test)
    return any(is_method(one, *STEPS, "zero_grad") or script.functions(last_name(one.func)) for one in calls)


def _saves(test: ast.If) -> bool:
    """Whether something is saved, which the first process does, with numbers of its own."""
    return any(map(_is_saving, test.body + test.orelse))


def _is_saving(statement: ast.stmt) -> bool:
    return any(isinstance(n, ast.Call) and last_name(n.func).startswith("save") for n in walk(statement))


def _calls(test: ast.If) -> list[ast.Call]:
    return [n for n in walk_all((*test.body, *test.orelse)) if isinstance(n, ast.Call)]


def _may_count(data: Data, tests: list[ast.If]) -> bool:
    """Whether these tests ask for nothing but a period, so that turns can be counted instead: for no end, and no start."""
    loop, call = data.loop, data.node
    assert isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and isinstance(call, ast.Call)
    number, end = loop.target.id, names_in(call.args[-1]) if call.args else set()
    for one in tests:
        nodes = walk(one.test)
        periodic = [n for n in nodes if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Mod)]
        asks_end = any(isinstance(n, ast.Call) for n in nodes) or names_in(one.test) & end
        if asks_end or not any(number in names_in(n.left) for n in periodic):
            return False
    return len(call.args) == 1 and not call.keywords


def count_turns(
    plan: Plan, data: Data, reads: list[ast.Name], accelerator: str, rule: str, reason: str
) -> None:
    """Deals the numbers; the loop counts its turns, and these reads are of them."""
    loop = data.loop
    assert isinstance(loop, ast.For) and isinstance(loop.target, ast.Name)
    turn = plan.script.free_name("turn", "own_turn", "number_of_turn")
    plan.replace(loop.target, rule, reason, f"{turn}, {{it}}", it=loop.target)
    for one in reads:
        plan.replace(one, rule, reason, turn)
    template = f"{accelerator}.prepare({{it}})"
    if loop.iter is data.node:
        template = f"enumerate({template})"
    else:
        plan.replace(loop.iter, rule, reason, "enumerate({it})", it=loop.iter)
    plan.replace(data.node, rule, reason, template, it=data.node)


def stays_whole(plan: Plan, data: Data) -> bool:
    """Says so where a loop over numbers does something at some of them, and not every so many turns."""
    tests = periods(plan.script, data)
    if not tests or _may_count(data, tests):
        return False
    reason = "every process trains on the same data: it takes a step at some numbers of its rows"
    plan.note("CT902", data.node, reason, "iterate a DataLoader, and count the turns of the loop")
    return True
