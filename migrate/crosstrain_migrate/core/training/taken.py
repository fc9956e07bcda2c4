"""Loops that take a number of batches by `next`: `for i in range(rows // size): batch = next(batches)`.

The number is that of all batches, and the prepared loader of a process has its share: it would end before the loop does. A data set, or its
sampler, that is made as long as the steps that are taken of it becomes so many times longer as there are processes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import counters_of
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import (
    RANGES,
    Frame,
    Loop,
    is_function_frame,
    is_method,
    names_in,
)
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import texts_in, walk, walk_all

RULE = "CT201"
REASON = "a pass has as many batches as the loader of one process"
GROUP = "batches that are taken by number"
ALL_STEPS = "each process takes all the steps, and has its share of the batches"


def plan_taken_batches(plan: Plan) -> None:
    """A loop that counts the batches of one pass ends with those of its process; one that takes a number of steps of its own in
    each pass, of batches that nothing begins anew where they end, takes them all, and goes over its share again."""
    script = plan.script
    for loop in script.table.each(ast.For):
        number = _number(loop, 1)  # `range(first, number)` goes on where a run ended
        if number is None or not script.is_reached(loop):
            continue
        loader = _taken_from(script, loop)
        frame = script.frame(loop)
        if (frame, loader) in plan.prepared and not knows(script, frame, number, loader):
            plan.replace(number, RULE, REASON, f"min({{number}}, len({loader}))", GROUP, number=number)
        elif not any("len(" in ast.unparse(one) for one in _told(script, frame, number)):
            for made in _begun_in_front(script, loop):
                if (frame, written(made.args[0])) in plan.prepared:
                    code = "chain({it}, chain.from_iterable(repeat({of})))"
                    plan.replace(made, RULE, ALL_STEPS, code, GROUP, it=made, of=made.args[0])
                    code = "from itertools import chain, repeat"
                    plan.add(e.AddImport(script.module(loop), RULE, transaction=GROUP, code=code))


def _begun_in_front(script: Script, loop: ast.For) -> Iterator[ast.Call]:
    """The iterators of variables, made anew for each pass in front of its loop, from which every turn takes batches."""
    frame, suite = script.frame(loop), script.suite_of(loop)
    calls = [n for n in walk_all(loop.body) if isinstance(n, ast.Call)]
    is_pass = [
        *script.loops_around(loop),
        *(n for c in _calls(script, frame) for n in script.loops_around(c)),
    ]
    if not is_pass or any(isinstance(n, ast.Try) for n in walk_all(loop.body)):
        return
    for name in sorted(set(map(_iterator_of, calls)) - {""}):
        values = script.values(frame, name)
        for made in values if len(values) == len(script.stores(frame, name)) == 1 else ():
            is_iterator = isinstance(made, ast.Call) and written(made.func) == "iter" and len(made.args) == 1
            if is_iterator and isinstance(made, ast.Call) and script.statement(made) in suite:
                yield made


def _told(script: Script, frame: Frame, number: ast.expr) -> list[ast.expr]:
    """A number, and what its variables are bound to or given."""
    given = [value for name in names_in(number) for value, _ in script.given_for(frame, name)]
    return [*_with_values(script, frame, number), *given]


def _calls(script: Script, frame: Frame) -> list[ast.Call]:
    return script.callers(frame) if is_function_frame(frame) else []


def counts_taken(script: Script, frame: Frame, text: str, length: ast.expr) -> bool:
    """Whether a loader's length is a part of the number of steps of a loop that takes its batches by `next`, or begins its
    loader anew: `for i in range(steps): x = next(batches)`, with `steps = len(first) + len(second)` and
    `batches = iter(first)`."""
    statement = script.statement(length)
    if not isinstance(statement, ast.Assign) or script.loops_around(statement):
        return False
    bound = {one.id for one in statement.targets if isinstance(one, ast.Name)}
    for home in frames_of_names(script, frame, bound):
        for loop in (one for one in script.within(home) if isinstance(one, ast.For)):
            number = _number(loop, 2)
            names = names_in(number) if number is not None else set()
            behind = {written(value) for name in names for value in script.values(home, name)}
            calls = [n for n in walk_all(loop.body) if isinstance(n, ast.Call)]
            taken = set(map(_iterator_of, calls)) - {""}
            made = [ast.unparse(value) for name in taken for value in script.values(home, name)]
            is_end = bool(bound & (names | behind)) or _begins_anew(loop, bound, taken)
            if is_end and f"iter({text})" in made:
                return True
    return False


def _begins_anew(loop: ast.For, numbers: set[str], taken: set[str]) -> bool:
    """Whether a loop makes an iterator anew by a number: `if step % number == 0: batches = iter(loader)`."""
    tests = (n for n in walk(loop) if isinstance(n, ast.If) and numbers & names_in(n.test))
    bound = (n for test in tests for n in walk_all(test.body) if isinstance(n, ast.Assign))
    return any(written(target) in taken for one in bound for target in one.targets)


def frames_of_names(script: Script, frame: Frame, names: set[str]) -> list[Frame]:
    """A frame, and the functions of a file that read its variables of these names."""
    if not isinstance(frame, ast.Module):
        return [frame]
    inner = filter(is_function_frame, script.frames_in(frame))
    return [frame, *(one for one in inner if not any(script.binds(one, name) for name in names))]


def _iterator_of(call: ast.Call) -> str:
    """`batches` of `next(batches)` and of `batches.next()`; empty for another call."""
    if is_method(call, "next"):
        return "" if call.args else written(call.func.value)
    return written(call.args[0]) if last_name(call.func) == "next" and len(call.args) == 1 else ""


def _number(loop: ast.For, most: int) -> ast.expr | None:
    """What a loop over `range(number)`, or `range(1, number)`, counts to; most: how many arguments it may have."""
    call = loop.iter
    is_range = isinstance(call, ast.Call) and last_name(call.func) in RANGES and 0 < len(call.args) <= most
    return call.args[-1] if is_range and isinstance(call, ast.Call) else None


def _taken_from(script: Script, loop: ast.For) -> str:
    """The loader whose iterator, made anew in front of the loop, gives it one batch a step; empty where there is none."""
    calls = [n for n in walk_all(loop.body) if isinstance(n, ast.Call)]
    taken = [one for one in calls if last_name(one.func) == "next"]
    guards = [n for n in walk_all(loop.body) if isinstance(n, ast.Try)]
    if len(taken) != 1 or len(taken[0].args) != 1 or not isinstance(taken[0].args[0], ast.Name) or guards:
        return ""
    frame, name = script.frame(loop), taken[0].args[0].id
    suite, stores, values = script.suite_of(loop), script.stores(frame, name), script.values(frame, name)
    if len(stores) != 1 or len(values) != 1 or script.statement(stores[0]) not in suite:
        return ""
    made = values[0]
    is_iterator = isinstance(made, ast.Call) and last_name(made.func) == "iter" and len(made.args) == 1
    loader = made.args[0] if is_iterator and isinstance(made, ast.Call) else None
    return loader.id if isinstance(loader, ast.Name) and _has_length(script, frame, loader.id) else ""


def _has_length(script: Script, frame: Frame, loader: str) -> bool:
    """Whether a DataLoader surely knows its length: it shuffles, or its sampler has one."""
    made = script.values(frame, loader)
    if len(made) != 1 or not isinstance(made[0], ast.Call) or last_name(made[0].func) != "DataLoader":
        return False
    given = {one.arg: one.value for one in made[0].keywords}
    sampler = given.get("sampler")
    if sampler is None:
        return "shuffle" in given and "batch_sampler" not in given
    values = script.values(frame, sampler.id) if isinstance(sampler, ast.Name) else [sampler]
    classes = [script.class_made(one) for one in values]
    return bool(classes) and all(
        cls is not None and any(one.name == "__len__" for one in script.methods(cls)) for cls in classes
    )


def knows(script: Script, frame: Frame, number: ast.expr, loader: str) -> bool:
    """Whether a number is computed from the length of the loader itself."""
    return any(f"len({loader})" in ast.unparse(one) for one in _with_values(script, frame, number))


def _with_values(script: Script, frame: Frame, number: ast.expr) -> list[ast.expr]:
    names = [n.id for n in walk(number) if isinstance(n, ast.Name)]
    return [number, *(value for name in names for value in script.values(frame, name))]


def plan_dataset_length(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Makes the data set so many times longer as there are processes."""
    script = plan.script
    for data in roles.data:
        loops = [
            loop
            for one in roles.backwards
            for loop in (script.loops_around(one.call) if data.loop is None else ())
            if script.frame(loop) is script.frame(data.node) and loop not in script.loops_around(data.node)
        ]
        steps = {text for loop in loops for text in _steps_of(loop)} | _steps_that_end(script, data.loop)
        is_one_pass = data.loop is not None and not script.loops_around(data.loop)
        for length, size in _given_to_data(script, data) if steps or is_one_pass else ():
            rows = _factors(length)
            is_all = is_one_pass and size in rows and len(rows) > 1
            if (is_all or (steps & rows and not size)) and (
                name := accelerators.may_be_at(length)
            ) is not None:
                # A pass that is all of the training has its steps already where the processes share each batch.
                many = f"(1 if {name}.split_batches else {name}.num_processes)"
                code = f"{{it}} * {many if is_all else f'{name}.num_processes'}"
                plan.replace(length, RULE, ALL_STEPS, code, it=length)


def _steps_of(loop: Loop) -> set[str]:
    """`args.steps` of `for i in range(args.steps)`"""
    counted = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(counted, ast.Call) or written(counted.func) != "range" or len(counted.args) > 2:
        return set()
    return {ast.unparse(one) for one in counted.args[-1:]}


def _steps_that_end(script: Script, loop: Loop | None) -> set[str]:
    """`args.steps` of `if i >= args.steps - 1: break`, in a loop over data."""
    breaks = [n for n in walk(loop) if isinstance(n, ast.Break) and script.loop_of(n) is loop] if loop else []
    tests = [
        test for one in breaks if isinstance(test := getattr(script.parent(one), "test", None), ast.Compare)
    ]
    counted = [one for one in tests if loop and written(one.left) in counters_of(loop, script)]
    ends = [one.comparators[0] for one in counted]
    lengths = [n for n in walk_all(ends) if isinstance(n, ast.Call) and last_name(n.func) == "len"]
    return {text for one in ends for text in texts_in(one)} - {text for n in lengths for text in texts_in(n)}


def _given_to_data(script: Script, data: Data) -> Iterator[tuple[ast.expr, str]]:
    """What the data set or the sampler is given of which the loader is made, for a sampler each with the loader's size of a
    batch: `DataLoader(Rows(path, max_iters=args.steps * 4))`, `DataLoader(rows, size, sampler=Drawn(rows, args.steps * size))`."""
    for loader in _calls_of(script, data.node):
        given = {k.arg: k.value for k in loader.keywords}
        given |= dict(zip(("dataset", "batch_size"), loader.args, strict=False))
        size = ast.unparse(given["batch_size"]) if "batch_size" in given else ""
        is_loader = last_name(loader.func) == "DataLoader"
        for name, rows in (("dataset", ""), ("sampler", size)) if is_loader else ():
            for call in _calls_of(script, given[name]) if name in given else ():
                yield from ((value, rows) for value in (*call.args, *(k.value for k in call.keywords)))


def _calls_of(script: Script, node: ast.expr) -> list[ast.Call]:
    values = [node, *script.values(script.frame(node), written(node))]
    return [one for one in values if isinstance(one, ast.Call)]


def _factors(node: ast.expr) -> set[str]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _factors(node.left) | _factors(node.right)
    return {ast.unparse(node)} if isinstance(node, ast.Name | ast.Attribute) else set()
