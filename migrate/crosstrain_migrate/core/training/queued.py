"""Batches that a method gives one by one: from a queue that threads fill, `batch = self.batches.get_next()`, or from the place
that its object has reached in the data, `batch = data.next_batch(8)`.

Every process goes through all the data, mostly in an order that all share: the batches are dealt as those of any other iterable
are (contract, decision 35).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import CORE, Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.draws import RANDOM, moved_on
from crosstrain_migrate.core.reading.forms import Loop, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import Function, last_name, written
from crosstrain_migrate.syntax.walks import stores_in, texts_in, walk

from .kept_state import note_carried_state

RULE = "CT201"
REASON = "each process trains on its share of the batches that are taken one by one"


@dataclass(frozen=True)
class Queued:
    """A call that takes a step's batch. loop: the outermost one around it."""

    call: ast.Call
    loop: Loop


def queued(script: Script, roles: Roles) -> list[Queued]:
    """Where the training step takes its batch from such a method, and nowhere else."""
    found = [
        Queued(call, loops[-1])
        for call in script.calls
        if script.is_reached(call) and _takes(script, call) and (loops := script.loops_around(call))
        if any(_trains(script, roles, call, one) for one in script.calls_in(script.frame(call)))
    ]
    return found if len({one.loop for one in found}) == 1 and not roles.data else []


def plan_queued(plan: Plan, accelerators: Accelerators, found: list[Queued]) -> bool:
    """Plans that the batches are dealt; False where no accelerator is at hand."""
    script, loop = plan.script, found[0].loop
    accelerator = accelerators.may_be_at(loop)
    takes = list(dict.fromkeys(written(one.call) for one in found))
    frame, numbers = script.frame(loop), ("", *range(2, len(takes) + 1))
    known = {n.id for n in script.within(frame) if isinstance(n, ast.Name)}
    is_taken = any(script.binds(frame, f"batches{n}") or f"batches{n}" in known for n in numbers)
    names = {take: f"{'dealt' if is_taken else 'batches'}{n}" for take, n in zip(takes, numbers, strict=True)}
    if accelerator is None:
        return False
    plan.add(e.AddImport(script.module(loop), RULE, transaction=CORE, code="import itertools"))
    for take, name in names.items():  # `iter(take, None)` is not written: authors name their counters `iter`
        code = f"{name} = {accelerator}.prepare({take} for _ in itertools.count())"
        plan.before(loop, RULE, REASON, code)
    loops = [(one.call, script.loops_around(one.call)[0]) for one in found]
    note_carried_state(plan, [Data(call, script.frame(call), loop) for call, loop in loops])
    for numbers in dict.fromkeys(_numbers_of_epoch(script, one.call) for one in found):
        _share_steps(plan, accelerators, numbers)
    replaced = [plan.replace(o.call, RULE, REASON, f"next({names[written(o.call)]})") for o in found]
    return all(replaced)


def _numbers_of_epoch(script: Script, call: ast.Call) -> tuple[ast.expr, ...]:
    """The places that divide rows into the batches of an epoch, `for i in range(len(rows) // size)` around the call in another
    loop, or what a variable is bound to that the range is given."""
    loops, frame = script.loops_around(call), script.frame(call)
    given = getattr(loops[0], "iter", None) if len(loops) > 1 else None
    if not isinstance(given, ast.Call) or written(given.func) != "range" or len(given.args) != 1:
        return ()
    number = given.args[0]
    if isinstance(number, ast.Name):
        values = script.values(frame, number.id)
        found = values if len(values) == len(script.stores(frame, number.id)) == 1 else []
    else:
        text = ast.unparse(number)
        found = [n for n in script.within(frame) if isinstance(n, ast.expr) and ast.unparse(n) == text]
    parts = [[n.op for n in walk(one) if isinstance(n, ast.BinOp)] for one in found]
    is_divided = all(any(isinstance(op, ast.Div | ast.FloorDiv) for op in each) for each in parts)
    return tuple(found) if is_divided else ()


def _share_steps(plan: Plan, accelerators: Accelerators, numbers: tuple[ast.expr, ...]) -> None:
    """An epoch has the steps of one process; a schedule that counts those of all keeps what it is told."""
    script = plan.script
    bound = [one for number in numbers for one in stores_in(script.statement(number))]
    told = [read for one in bound for read in script.reads(script.frame(one), written(one))]
    calls = [one for read in (*told, *numbers) for one in script.around(read) if isinstance(one, ast.Call)]
    knows = [accelerators.may_be_at(one) for one in numbers]
    if None in knows or any("lr_scheduler" in script.dotted(one.func) for one in calls):
        reason = "each process makes all the steps that this counts, with batches of its own"
        plan.note(RULE, numbers[0], reason, "divide them by `accelerator.num_processes`")
        return
    for number, accelerator in zip(numbers, knows, strict=True):
        code = plan.share_of(number, accelerator or "")
        plan.replace(number, RULE, "an epoch has the steps of one process", code, it=number)


def _takes(script: Script, call: ast.Call) -> bool:
    """Whether variables are bound to what a method of an object takes; nobody asks whether it is nothing."""
    assign, loops = script.parent(call), script.loops_around(call)
    if not isinstance(call.func, ast.Attribute) or not isinstance(assign, ast.Assign) or not loops:
        return False
    frame, taken = script.frame(call), {n for target in assign.targets for n in names_in(target)}
    bound = set(map(written, stores_in(loops[-1])))
    if len(assign.targets) != 1 or bound & texts_in(call):
        return False
    nodes = script.within(frame)
    asked = {written(n.left) for n in nodes if isinstance(n, ast.Compare) and "None" in ast.unparse(n)}
    asked |= {written(n.test) for n in nodes if isinstance(n, ast.If | ast.While)}
    methods = [one for one in script.functions(call.func.attr) if script.class_of(one) is not None]
    if len(methods) != 1 or asked & taken:
        return False
    if gives_from_queue(script, methods[0]):
        is_plain = not call.args and not call.keywords
        return is_plain and not script.stores(frame, written(call.func.value))
    return _gives_next_rows(script, call, methods[0], loops[-1])


def _gives_next_rows(script: Script, call: ast.Call, method: Function, loop: Loop) -> bool:
    """Whether a method returns rows from a place that it moves on, which nothing else in the loop asks, and neither draws it
    nor ends by an error."""
    items = moved_on(script, method)
    places = {text for each in items.values() for text in each}
    drawn = [one for one in script.calls_in(method) if RANDOM.match(script.dotted(one.func))]
    if any(places & set(map(written, stores_in(script.statement(one)))) for one in drawn):
        return False
    if any(isinstance(n, ast.Raise | ast.Yield) for n in script.within(method)):
        return False
    of = written(call.func).rpartition(".")[0]
    asked = {f"{of}.{text.partition('.')[2]}" for text in places} & texts_in(loop)
    parts = [n for item in items for n in (*walk(item.slice), *script.around(item))]
    is_rows = any(isinstance(n, ast.Slice | ast.For | ast.ListComp) for n in parts)
    return is_rows and not asked and not any(isinstance(n, ast.Try) for n in script.around(call))


def gives_from_queue(script: Script, method: Function) -> bool:
    """Whether a method returns what it gets from a queue that its class makes."""
    got = [n for n in script.calls_in(method) if is_method(n, "get") and _is_queue(script, method, n)]
    given = script.returned(method)
    bound = {
        t.id
        for n in got
        if isinstance(a := script.parent(n), ast.Assign)
        for t in a.targets
        if isinstance(t, ast.Name)
    }
    return any(n in got or written(n) in bound for n in given)


def _is_queue(script: Script, method: Function, get: ast.Call) -> bool:
    cls, of = script.class_of(method), get.func.value if isinstance(get.func, ast.Attribute) else get
    made = [v for m in script.methods(cls) for v in script.values(m, written(of))]
    return any(isinstance(one, ast.Call) and last_name(one.func).endswith("Queue") for one in made)


def _trains(script: Script, roles: Roles, call: ast.Call, step: ast.Call) -> bool:
    """Whether a call beside it goes backward, or is of a function that does, and is given what was taken."""
    loops = set(script.loops_around(call))
    if not loops & set(script.loops_around(step)):
        return False
    backwards = {one.call for one in roles.backwards}
    if step in backwards:
        return True
    frames = {one.frame for one in roles.backwards if is_function_frame(one.frame)}
    assign = script.parent(call)
    taken = names_in(assign.targets[0]) if isinstance(assign, ast.Assign) else set()
    return not frames.isdisjoint(script.functions_of(step)) and any(
        taken & names_in(one) for one in (*step.args, *(k.value for k in step.keywords))
    )
