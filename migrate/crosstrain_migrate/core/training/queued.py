"""Batches that threads put into a queue: `batch = self.batches.get_next()`, a method that takes one from it.

The threads of every process go through all the data, mostly in an order that all share: the batches are dealt as those of any
other iterable are (contract, decision 35).
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import CORE, Plan
from crosstrain_migrate.core.reading.forms import Loop, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import Function, last_name, written

RULE = "CT201"
REASON = "each process trains on its share of the batches that the threads queue"
_NAME = "batches"


@dataclass(frozen=True)
class Queued:
    """A call that takes a step's batch from a queue. loop: the outermost one around it."""

    call: ast.Call
    loop: Loop


def queued(script: Script, roles: Roles) -> Queued | None:
    """Where the training step takes its batch from a queue, and nowhere else."""
    found = [
        Queued(call, loops[-1])
        for call in script.calls
        if script.is_reached(call) and _takes(script, call) and (loops := script.loops_around(call))
        if any(_trains(script, roles, call, one) for one in script.calls_in(script.frame(call)))
    ]
    return found[0] if len(found) == 1 and not roles.data else None


def plan_queued(plan: Plan, accelerators: Accelerators, found: Queued) -> bool:
    """Plans that the batches are dealt; False where no name is free, or no accelerator at hand."""
    script, frame = plan.script, plan.script.frame(found.call)
    accelerator = accelerators.may_be_at(found.loop)
    if accelerator is None or script.binds(frame, _NAME):
        return False
    take = written(found.call)  # `iter(take, None)` is not written: authors name their counters `iter`
    plan.add(e.AddImport(script.module(found.call), RULE, transaction=CORE, code="import itertools"))
    code = f"{_NAME} = {accelerator}.prepare({take} for _ in itertools.count())"
    plan.before(found.loop, RULE, REASON, code)
    return plan.replace(found.call, RULE, REASON, f"next({_NAME})")


def _takes(script: Script, call: ast.Call) -> bool:
    """Whether variables are bound to what a method of an object takes from its queue; nobody asks whether it is nothing."""
    assign = script.parent(call)
    if (
        not isinstance(call.func, ast.Attribute)
        or call.args
        or call.keywords
        or not isinstance(assign, ast.Assign)
    ):
        return False
    frame, taken = script.frame(call), {n for target in assign.targets for n in names_in(target)}
    if len(assign.targets) != 1 or script.stores(frame, written(call.func.value)):
        return False
    nodes = script.within(frame)
    asked = {written(n.left) for n in nodes if isinstance(n, ast.Compare) and "None" in ast.unparse(n)}
    asked |= {written(n.test) for n in nodes if isinstance(n, ast.If | ast.While)}
    methods = [one for one in script.functions(call.func.attr) if script.class_of(one) is not None]
    return len(methods) == 1 and not asked & taken and gives_from_queue(script, methods[0])


def gives_from_queue(script: Script, method: Function) -> bool:
    """Whether a method returns what it gets from a queue that its class makes."""
    got = [n for n in script.calls_in(method) if is_method(n, "get") and _is_queue(script, method, n)]
    given = [n.value for n in script.within(method) if isinstance(n, ast.Return) and n.value is not None]
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
    made = [
        v for m in (script.methods(cls) if cls is not None else ()) for v in script.values(m, written(of))
    ]
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
    return not frames.isdisjoint(script.functions(script.last(step.func))) and any(
        taken & names_in(one) for one in (*step.args, *(k.value for k in step.keywords))
    )
