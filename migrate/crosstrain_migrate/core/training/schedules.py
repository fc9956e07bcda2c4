"""Schedules of loops that become shorter: those that the runtime moves by all processes' batches, those of the project's
own classes, which are given the length of the prepared loader, and learning rates that the script computes from rows.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import comes_alike, counters_of, what_may_differ
from crosstrain_migrate.core.reading.forms import Frame, Loop, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.roles import Roles, Stepped
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk, walk_all

from .counted_rows import is_rows
from .ends import ends_by_steps, limits_of_steps, turns_by_steps
from .holders import Held

_STEPS_OF_A_RUN = ("t_total", "num_training_steps", "num_train_steps", "total_steps")


@dataclass(frozen=True)
class OwnSchedule:
    """A schedule of a class of the project's own, which the runtime cannot move: `made` are the calls that make it."""

    stepped: Stepped
    made: tuple[ast.Call, ...]


def shortened(script: Script, roles: Roles, loaders: Container[str]) -> list[Stepped]:
    """torch's schedulers of loops over data that is divided: what makes a number of steps of its own stays as it is.

    loaders: how they are written.
    """
    divided = [loop for one in roles.data if (loop := one.loop or one.beside) is not None]
    of_torch = [
        one
        for one in roles.schedulers
        if not _makers(script, one) and not _has_own_length(script, one, divided, loaders)
    ]
    if len(divided) == len(roles.data) > 0:
        return of_torch
    return [
        one
        for one in of_torch
        if any(loop in divided or _counts_batches(script, loop) for loop in _loops_of(script, one.call))
    ]


def _loops_of(script: Script, call: ast.Call, depth: int = 3) -> list[Loop]:
    """The loops around a call; around the calls of its function where that has none."""
    frame, found = script.frame(call), script.loops_around(call)
    if found or not depth or not is_function_frame(frame):
        return found
    return [loop for one in script.callers(frame) for loop in _loops_of(script, one, depth - 1)]


def _has_own_length(script: Script, scheduler: Stepped, divided: list[Loop], loaders: Container[str]) -> bool:
    """Whether a schedule lasts as long as the training by the script's own counter or number of steps."""
    loops = [one for one in _loops_of(script, scheduler.call) if one in divided]
    return any(ends_by_steps(script, one) or turns_by_steps(script, one, loaders) for one in loops)


def made_for_steps(
    script: Script, roles: Roles, scheduler: Stepped, loaders: Iterable[Held], above: list[Held]
) -> OwnSchedule | None:
    """A schedule that ends with the training also where a number of steps ends it, `t_total = args.max_steps` or else
    `len(loader) * epochs`, or that moves by epochs where an option says so: one step a batch of one process fits both, where
    the length is that of a prepared loader.

    above: where the schedule is held.
    """
    homes = dict.fromkeys([(scheduler.frame, scheduler.text), *((one.frame, one.text) for one in above)])
    calls = [v for home in homes for v in script.values(*home) if isinstance(v, ast.Call)]
    limits = {text for loop in _loops_of(script, scheduler.call) for text in limits_of_steps(script, loop)}
    by_epochs = any(_steps_by_epochs(script, roles, *home) for home in homes)
    schedule = OwnSchedule(scheduler, tuple(calls))
    given = list(given_to(script, schedule)) if (limits or by_epochs) and calls else []
    asked = [one for n in given if isinstance(n, ast.Call) and last_name(n.func) == "len" for one in n.args]
    is_limited = any(isinstance(n, ast.Name | ast.Attribute) and written(n) in limits for n in given)
    knows_all = all(any(_is_variable_of(script, one, it) for it in loaders) for one in asked)
    return schedule if knows_all and (is_limited or (by_epochs and asked)) else None


def _steps_by_epochs(script: Script, roles: Roles, frame: Frame, text: str) -> bool:
    """Whether a function also moves a schedule outside of all loops over data: `if by_epochs: scheduler.step()`."""
    loops = {one.loop for one in roles.data} - {None}
    steps = (c for c in script.calls_in(frame) if is_method(c, "step") and not c.args)
    own = [c for c in steps if written(c.func).removesuffix(".step") == text and script.loops_around(c)]
    return bool(loops) and any(loops.isdisjoint(script.loops_around(one)) for one in own)


def asks_at_each_step(script: Script, scheduler: Held, loaders: Iterable[Held]) -> bool:
    """Whether a schedule asks a loader for its length whenever it is computed, `LambdaLR(optimizer, lambda step: ...)`: that
    of the prepared loader, which one step a batch of one process fits."""
    for value in script.values(scheduler.frame, scheduler.text):
        nodes = [n for n in walk(value) if isinstance(n, ast.Lambda)]
        named = [f for n in walk(value) if isinstance(n, ast.Name) for f in script.functions(n.id)]
        for node in walk_all((*nodes, *named)):
            asked = node.args if isinstance(node, ast.Call) and last_name(node.func) == "len" else []
            if any(_is_variable_of(script, one, it) for one in asked for it in loaders):
                return True
    return False


def _is_variable_of(script: Script, read: ast.expr, held: Held) -> bool:
    """Whether an expression reads the very variable that holds a loader."""
    frame = script.frame(read)
    is_seen = frame is held.frame or (
        script.module(read) is held.frame and not script.binds(frame, held.text)
    )
    return held.kind == "loader" and is_seen and written(read) == held.text


def own_schedules(script: Script, roles: Roles) -> list[OwnSchedule]:
    """The schedules of the project's own classes that are stepped once a batch: by `step`, or by whatever else one is asked
    for that is made of an optimizer and the length of something, `make_cycle(optimizer, epochs * len(loader))`."""
    stepped = [OwnSchedule(one, makers) for one in roles.schedulers if (makers := _makers(script, one))]
    known = [call for one in stepped for call in one.made]
    return stepped + [
        OwnSchedule(Stepped(last_name(call.func), call, script.frame(call)), (call,))
        for call in script.calls
        if call not in known and script.is_reached(call) and _is_of_optimizer_and_length(script, roles, call)
    ]


def _is_of_optimizer_and_length(script: Script, roles: Roles, call: ast.Call) -> bool:
    """By the last parts of their names, since a function that makes a schedule may be given an optimizer and a number; a number
    that is no loader's, `classes = len(names)`, is none of steps."""
    if (cls := script.class_behind(call)) is None or _is_torch(script, cls):
        return False
    frame = script.frame(call)
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    direct, loaders = walk_all(given), {last_name(one.node) for one in roles.data}
    lengths = (n for n in _given(script, call) if isinstance(n, ast.Call) and last_name(n.func) == "len")
    counts = (n for n in lengths if n in direct or loaders & set(map(last_name, n.args)))
    if all(n not in direct and any(_makes_object(script, one) for one in script.around(n)) for n in counts):
        return False
    optimizers = {one.text.rpartition(".")[2] for one in roles.optimizers}
    named = [written(one) for one in given if isinstance(one, ast.Name | ast.Attribute)]
    made = [v.func for text in named for v in script.values(frame, text) if isinstance(v, ast.Call)]
    is_named = any(text.rpartition(".")[2] in optimizers for text in named)
    return is_named or any(script.dotted(f).startswith("torch.optim.") for f in made)


def _makes_object(script: Script, node: ast.AST) -> bool:
    """Whether what is given is no number, but a schedule of torch's, or an object, that one was made with."""
    is_made = isinstance(node, ast.Call) and script.class_behind(node) is not None
    return is_made or (isinstance(node, ast.Call) and _is_scheduler(script, node))


def _makers(script: Script, scheduler: Stepped) -> tuple[ast.Call, ...]:
    """The calls that make a scheduler of a class of the project that is none of torch's; empty where it is torch's."""
    name = scheduler.text.rpartition(".")[2]
    values = [
        value
        for frame in script.reached_frames
        for text in dict.fromkeys((scheduler.text, name, f"self.{name}"))
        for value in script.values(frame, text)
    ]
    made = [(v, cls) for v in values if isinstance(v, ast.Call) and (cls := script.class_behind(v))]
    return tuple(v for v, _ in made) if made and not any(_is_torch(script, cls) for _, cls in made) else ()


def _is_torch(script: Script, cls: ast.ClassDef, depth: int = 0) -> bool:
    """Whether a class derives from a scheduler of torch's, or of another library's."""
    for base in cls.bases:
        own = script.classes(script.last(base))
        if script.dotted(base) != "object" and (not own or depth > 3 or _is_torch(script, own[0], depth + 1)):
            return True
    return False


def given_to(script: Script, schedule: OwnSchedule) -> Iterator[ast.AST]:
    """What a schedule is given, with what the variables in it are bound to in the same frame, or given by its calls."""
    for call in schedule.made:
        yield from _given(script, call)


def _given(script: Script, call: ast.Call) -> Iterator[ast.AST]:
    frame = script.frame(call)
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        yield from walk(argument)
        lengths = [n for n in walk(argument) if isinstance(n, ast.Call) and last_name(n.func) == "len"]
        for name in names_in(argument).difference(*map(names_in, lengths)):
            for value in (*script.values(frame, name), *(one for one, _ in script.given_for(frame, name))):
                yield from walk(value)


def say_own_schedules(plan: Plan, schedules: Iterable[OwnSchedule], lengths: Iterable[ast.expr]) -> None:
    """Says which schedules of the project's own are not given the length of the loader that is prepared."""
    known = set(map(id, lengths))
    for one in schedules:
        if not any(id(node) in known for node in given_to(plan.script, one)):
            reason = f"`{one.stepped.text}` moves one step a batch, and each process has its own share of the batches"
            remedy = "give it the steps of one process: the length of the prepared loader"
            plan.note("CT201", one.made[0], reason, remedy)


def counting_optimizers(script: Script, roles: Roles) -> list[OwnSchedule]:
    """The optimizers, of those that lower their own rate, that are told how many steps a run over all data has:
    `BertAdam(..., t_total=len(loader) * epochs)`. Each process makes only its share of them."""
    if not roles.optimizers or not any(one.loop is not None for one in roles.data):
        return []
    places = [(place, one.text) for one in roles.optimizers for place in (one.frame, script.module(one.call))]
    made = [value for place, text in places for value in script.values(place, text)]
    found = []
    for call in script.calls:
        given = next((k.value for k in call.keywords if k.arg in _STEPS_OF_A_RUN), None)
        has_rate = call in made or any(k.arg == "lr" for k in call.keywords)
        steps_alone = has_rate and not _is_scheduler(script, call)
        if given is not None and steps_alone and _comes_from_length(script, script.frame(call), given, 0):
            found.append(OwnSchedule(roles.optimizers[0], (call,)))
    return found


def share_counted_steps(
    plan: Plan, optimizers: Iterable[OwnSchedule], lengths: Iterable[ast.expr], accelerators: Accelerators
) -> None:
    """Divides the steps of those that are not given the prepared loader's length; what may be the author's own is said."""
    known, script = set(map(id, lengths)), plan.script
    for one in optimizers:
        if any(id(node) in known for node in given_to(script, one)):
            continue
        call = one.made[0]
        steps = next(k.value for k in call.keywords if k.arg in _STEPS_OF_A_RUN)
        values = script.values(script.frame(call), written(steps)) or [steps]
        if all(v and _comes_from_length(script, script.frame(call), v, 0) for v in values):
            code = plan.share_of(steps, accelerators.at(call))
            plan.replace(steps, "CT201", "each process makes its share of the steps", code, it=steps)
        else:
            reason = "this optimizer lowers its rate over all processes' steps, and each makes its share"
            plan.note("CT201", call, reason, "divide the number by `accelerator.num_processes`")


def _is_scheduler(script: Script, call: ast.Call) -> bool:
    return script.dotted(call.func).startswith(("torch.optim.lr_scheduler.", "transformers."))


def _comes_from_length(script: Script, frame: Frame, node: ast.expr, depth: int) -> bool:
    """Whether a number is computed from the length of something."""
    nodes = walk(node)
    if any(isinstance(one, ast.Call) and last_name(one.func) == "len" for one in nodes):
        return True
    texts = {written(one) for one in nodes if isinstance(one, ast.Name | ast.Attribute)}
    values = [value for text in texts for value in script.values(frame, text)]
    return depth < 3 and any(_comes_from_length(script, frame, value, depth + 1) for value in values)


def _counts_batches(script: Script, loop: Loop) -> bool:
    """Whether a loop that takes its batches by `next` makes as many steps as a loader has batches."""
    head = loop.test if isinstance(loop, ast.While) else loop.iter
    frame = script.frame(loop)
    behind = [head, *(value for name in names_in(head) for value in script.values(frame, name))]
    if any(isinstance(n, ast.Call) and last_name(n.func) == "len" for n in walk_all(behind)):
        return True
    handlers = [n for n in walk(loop) if isinstance(n, ast.ExceptHandler)]
    return any(
        one.type is not None
        and last_name(one.type) == "StopIteration"
        and any(isinstance(n, ast.Break) for n in walk(one))
        for one in handlers
    )


def plan_counted_rates(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Counts the rows of all processes where the learning rate is computed from their number."""
    for data in roles.data:
        loop = data.loop
        if not isinstance(loop, ast.For):
            continue
        nodes = walk_all(loop.body)
        batch = _computed_from(nodes, names_in(loop.target) - counters_of(loop, plan.script))
        rates = _decides_rate(nodes)
        _plan_rows_of_steps(plan, nodes)
        for node in nodes:
            if not isinstance(node, ast.AugAssign) or not isinstance(node.op, ast.Add):
                continue
            if written(node.target) not in rates:
                continue
            if not names_in(node.value) & batch or plan.is_replaced(node.value):
                continue
            if comes_alike(plan.script, node, loop, what_may_differ(plan.script, loop)):
                code = f'{accelerators.at(node)}.reduce({{it}}, "sum")'
                reason = "the learning rate follows the rows of all processes"
                plan.replace(node.value, "CT602", reason, code, it=node.value)


def _plan_rows_of_steps(plan: Plan, nodes: list[ast.AST]) -> None:
    """`group["lr"] = lr * (1 - group["step"] * batch_size / total)`, in a function that each step calls: a step takes a batch of
    each process."""
    script = plan.script
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    given = (k.value for call in script.calls for k in call.keywords if k.arg == "batch_size")
    sizes = {ast.unparse(one) for one in given if isinstance(one, ast.Name | ast.Attribute)}
    for function in (one for call in calls for one in script.functions_of(call)):
        for node in script.within(function):
            if not isinstance(node, ast.Assign) or not _sets_rate(node):
                continue
            shares = [n for n in walk(node.value) if isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div)]
            parts = [one for share in shares for one in _factors(share.left)]
            counted = {ast.unparse(_bare(one)) for one in parts if not isinstance(one, ast.Constant)}
            for one in parts if counted - sizes else ():
                if ast.unparse(_bare(one)) in sizes and not plan.is_replaced(one):
                    code = f"{{it}} * {plan.state(one)}.num_processes"
                    plan.replace(
                        one, "CT201", "the learning rate follows the rows of all processes", code, it=one
                    )


def _factors(node: ast.expr) -> list[ast.expr]:
    """`a`, `b` and `c` of `a * b * c`"""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    return [node]


def _bare(node: ast.expr) -> ast.expr:
    """`n` of `float(n)`"""
    if isinstance(node, ast.Call) and written(node.func) in ("float", "int") and node.args:
        return node.args[0]
    return node


def _sets_rate(node: ast.Assign) -> bool:
    return any(isinstance(t, ast.Subscript) and ast.unparse(t.slice) == "'lr'" for t in node.targets)


def _computed_from(nodes: list[ast.AST], names: set[str]) -> set[str]:
    """The variables that hold these, or what is computed from them."""
    found = set(names)
    for node in nodes:
        if isinstance(node, ast.Assign) and names_in(node.value) & found:
            found |= {name for target in node.targets for name in names_in(target)}
    return found


def _decides_rate(nodes: list[ast.AST]) -> set[str]:
    """What a learning rate is computed from, where it is set by hand, `group["lr"] = ...`, and the rows that a schedule is told of,
    `schedule.step(rows)`."""
    assigns = [node for node in nodes if isinstance(node, ast.Assign)]
    grown = {written(n.target) for n in nodes if isinstance(n, ast.AugAssign) and is_rows(n.value)}
    found = {written(one) for n in nodes if is_method(n, "step") for one in n.args} & grown
    for _ in range(4):
        for node in assigns:
            if _sets_rate(node) or found & {written(target) for target in node.targets}:
                found |= {written(n) for n in walk(node.value) if isinstance(n, ast.Name | ast.Attribute)}
    return found
