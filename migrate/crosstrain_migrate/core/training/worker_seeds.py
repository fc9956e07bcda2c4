"""Batches that worker processes of the script's own draw: the seed that each is given must differ by process.

`Process(target=sample, args=(rows, queue, np.random.randint(2e9)))` draws the seed from a stream that all processes have alike
above the training, so that all would train on the same batches (contract, decision 34).
"""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_method, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, last_name

from .queued import gives_from_queue

RULE = "CT201"
OWN_SEEDS = "the workers of each process draw batches of their own"
_DRAWS = re.compile(r"((numpy|np)\.)?random\.(randint|randrange)$|torch\.randint$")
_STARTS = {"seed", "manual_seed", "RandomState", "default_rng", "Random"}


def drawn_seeds(script: Script) -> list[ast.Call]:
    """The draws that are given to worker processes as an argument, where training takes its batches from their queue:
    `Process(target=sample, args=(rows, queue, np.random.randint(2e9)))`.

    They come from a stream that all processes have alike above the training, so that all would train on the same batches
    (contract, decision 34).
    """
    return [
        given
        for call in script.calls
        if last_name(call.func) == "Process" and script.is_reached(call) and _feeds_training(script, call)
        for keyword in call.keywords
        if keyword.arg == "args" and isinstance(keyword.value, ast.Tuple)
        for place, given in enumerate(keyword.value.elts)
        if isinstance(given, ast.Call) and _DRAWS.match(script.dotted(given.func))
        if _seeds_with(script, call, place)
    ]


def plan_worker_seeds(plan: Plan, draws: list[ast.Call]) -> None:
    """Plans that each process starts from seeds of its own."""
    for draw in draws:
        state = plan.state(draw)
        plan.replace(draw, RULE, OWN_SEEDS, f"{{of}} + {state}.process_index", of=draw)


def seed_themselves(script: Script) -> bool:
    """Whether worker processes that fill a queue start their random numbers from a number of their own:
    `np.random.seed(os.getpid())`."""
    started = (c for c in script.calls if last_name(c.func) == "Process" and script.is_reached(c))
    work = [script.calls_in(worker) for call in started for worker in _workers(script, call)]
    filling = (calls for calls in work if any(is_method(one, "put") for one in calls))
    seeding = (one for calls in filling for one in calls if last_name(one.func) in _STARTS)
    return any("getpid()" in ast.unparse(one) for one in seeding)


def _workers(script: Script, process: ast.Call) -> list[Function]:
    """The function that a process runs."""
    target = next((k.value for k in process.keywords if k.arg == "target"), None)
    return script.functions(script.last(target)) if target is not None else []


def _seeds_with(script: Script, process: ast.Call, place: int) -> bool:
    """Whether the function that a process runs starts its random numbers from the argument at a place."""
    workers = _workers(script, process)
    return bool(workers) and all(
        any(
            last_name(one.func) in _STARTS
            and set(script.parameters(worker)[place : place + 1]) & names_in(one)
            for one in script.calls_in(worker)
        )
        for worker in workers
    )


def _feeds_training(script: Script, process: ast.Call) -> bool:
    """Whether a loop asks the object that starts a process for what comes out of its queue."""
    cls = script.class_of(script.frame(process))
    methods = script.methods(cls)
    names = {one.name for one in methods if gives_from_queue(script, one)}
    return any(last_name(call.func) in names and script.loops_around(call) for call in script.calls)
