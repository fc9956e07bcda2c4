"""Loops that take a number of batches by `next`: `for i in range(rows // size): batch = next(batches)`.

The number is that of all batches, and the prepared loader of a process has its share: it would end before the loop does.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk, walk_all

RULE = "CT201"
REASON = "a pass has as many batches as the loader of one process"
GROUP = "batches that are taken by number"


def plan_taken_batches(plan: Plan) -> None:
    """A loop that counts the batches of one pass ends with those of its process."""
    script = plan.script
    for loop in script.table.each(ast.For):
        number = _number(loop, 1)  # `range(first, number)` goes on where a run ended
        if number is None or not script.is_reached(loop):
            continue
        loader = _taken_from(script, loop)
        frame = script.frame(loop)
        if (frame, loader) in plan.prepared and not knows(script, frame, number, loader):
            plan.replace(number, RULE, REASON, f"min({{number}}, len({loader}))", GROUP, number=number)


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
    inner = (one for one in script.frames if script.module(one) is frame and is_function_frame(one))
    return [frame, *(one for one in inner if not any(script.binds(one, name) for name in names))]


def _iterator_of(call: ast.Call) -> str:
    """`batches` of `next(batches)` and of `batches.next()`; empty for another call."""
    if is_method(call, "next"):
        return "" if call.args else written(call.func.value)
    return written(call.args[0]) if last_name(call.func) == "next" and len(call.args) == 1 else ""


def _number(loop: ast.For, most: int) -> ast.expr | None:
    """What a loop over `range(number)`, or `range(1, number)`, counts to; most: how many arguments it may have."""
    call = loop.iter
    is_range = isinstance(call, ast.Call) and last_name(call.func) == "range" and 0 < len(call.args) <= most
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
    names = [n.id for n in walk(number) if isinstance(n, ast.Name)]
    behind = [number, *(value for name in names for value in script.values(frame, name))]
    return any(f"len({loader})" in ast.unparse(one) for one in behind)
