"""CT305: processes that a script starts one by one, each with a rank of its group: `Process(target=work, args=(rank, size))`.

The launcher starts them, so that the loop over ranks has one turn in each, and what it makes runs there: `p.run()`.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import Function, last_name, written
from crosstrain_migrate.syntax.walks import walk

RULE = "CT305"


def is_process(spawn: ast.Call) -> bool:
    return last_name(spawn.func) == "Process"


def ranks_of(script: Script, process: ast.Call) -> ast.Call | None:
    """The `range(size)` over which a loop makes the processes of a group."""
    for one in script.around(process):
        turn = next(iter(one.generators), None) if isinstance(one, ast.ListComp) else one
        if isinstance(turn, ast.For | ast.comprehension) and isinstance(turn.iter, ast.Call):
            is_range = last_name(turn.iter.func) == "range" and len(turn.iter.args) == 1
            return turn.iter if is_range and isinstance(turn.target, ast.Name) else None
    return None


def goes_into_group(script: Script, read_in: Frame, name: str, key: str, depth: int = 3) -> bool:
    """Whether a function takes a number as it is for its process group, itself or in a function that is given it: `setup(rank, size)`
    around `init_process_group("nccl", rank=rank, world_size=size)`."""
    for read in script.reads(read_in, name) if depth else ():
        given = script.parent(read)
        if isinstance(given, ast.keyword) and given.arg == key:
            return last_name(getattr(script.parent(given), "func", given)) == "init_process_group"
        if any(goes_into_group(script, *one, key, depth - 1) for one in script.given_on(read)):
            return True
    return False


def plan_alone(plan: Plan, worker: Function, spawn: ast.Call) -> None:
    """`run(0, 1, args)` beside `mp.spawn(run, args=(size, args))`: where the launcher has started several processes, they work
    together there too, but for a branch that is for one process: `if n_gpus > 1: mp.spawn(...)`, `else: run(0, 1, args)`."""
    script, names = plan.script, [one.arg for one in worker.args.args]
    numbers = {"rank": (0, "process_index"), "world_size": (1, "num_processes")}
    tests = [n for one in script.around(spawn) if isinstance(one, ast.If) for n in walk(one.test)]
    if any(isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Gt | ast.GtE) for one in tests):
        return
    for call in (one for one in script.callers(worker) if one is not spawn):
        given = script.given_by(call, worker)
        for key, (alone, code) in numbers.items():
            name = next((one for one in names if goes_into_group(script, worker, one, key)), "")
            number = _bound_beside(script, call, given[name]) if name in given else None
            if isinstance(number, ast.Constant) and number.value == alone:
                plan.replace(number, RULE, "the launcher starts the processes", f"{plan.state(call)}.{code}")


def _bound_beside(script: Script, call: ast.Call, given: ast.expr) -> ast.expr:
    """What a name is bound to in the same block above a call, `rank = 0`, or the expression itself."""
    suite = script.suite_of(script.statement(call))
    values = (one for one in script.values(script.frame(call), written(given)) if one.lineno < call.lineno)
    beside = [one for one in values if script.statement(one) in suite]
    return beside[-1] if beside else given


def plan_processes(plan: Plan, process: ast.Call) -> None:
    """Runs the work of one process where the script started those of all."""
    script, ranks = plan.script, ranks_of(plan.script, process)
    if ranks is None:
        return
    plan.replace(
        ranks, RULE, "the launcher starts the processes", f"[{plan.state(ranks)}.local_process_index]"
    )
    is_started = _Started(script, process)
    for call in script.calls_in(script.frame(process)):
        if not is_method(call, "start", "join") or not is_started.is_one(call.func.value):
            continue
        if is_method(call, "start"):
            plan.replace(call, RULE, "the process itself does the work", "{of}.run()", of=call.func.value)
        elif is_statement_call(script, call):
            waits = script.statement(call)
            above = script.parent(waits)
            gone = above if isinstance(above, ast.For) and above.body == [waits] else waits
            plan.remove(gone, RULE, "the launcher waits for the processes")


class _Started:
    """The names of the processes that a loop makes: `p`, the list that keeps them, and what loops over that list call each."""

    def __init__(self, script: Script, process: ast.Call) -> None:
        frame = script.frame(process)
        kept = next((one for one in script.around(process) if isinstance(one, ast.ListComp)), process)
        bound = script.parent(kept)
        names = set(map(written, bound.targets)) if isinstance(bound, ast.Assign) else set()
        self._process, self._lists = process, names if kept is not process else set()
        self._names = names if kept is process else set()
        for call in script.calls_in(frame):
            given = call.args[0] if is_method(call, "append") and call.args else None
            if given is not None and isinstance(call.func, ast.Attribute) and self.is_one(given):
                self._lists.add(written(call.func.value))
        loops = (n for n in script.within(frame) if isinstance(n, ast.For) and written(n.iter) in self._lists)
        self._names |= {written(loop.target) for loop in loops}

    def is_one(self, node: ast.expr) -> bool:
        """Whether an expression is such a process: the call that makes it, `p`, or `processes[0]`."""
        is_entry = isinstance(node, ast.Subscript) and written(node.value) in self._lists
        return node is self._process or written(node) in self._names or is_entry
