"""CT305: processes that a script starts one by one, each with a rank of its group: `Process(target=work, args=(rank, size))`.

The launcher starts them, so that the loop over ranks has one turn in each, and what it makes runs there: `p.run()`.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import last_name, written

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
