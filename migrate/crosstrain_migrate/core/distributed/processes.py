"""CT305: processes that a script starts one by one, each with a rank of its group: `Process(target=work, args=(rank, size))`.

The launcher starts them, so that the loop over ranks has one turn in each, and what it makes runs there: `p.run()`.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_method, names_in
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import last_name

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
    for call in script.calls_in(script.frame(process)):
        if not is_statement_call(script, call) or call.args or call.keywords:
            continue
        if is_method(call, "start") and isinstance(call.func, ast.Attribute):
            plan.replace(call, RULE, "the process itself does the work", "{of}.run()", of=call.func.value)
        elif is_method(call, "join"):
            waits, above = script.statement(call), script.parent(script.statement(call))
            loops = (
                isinstance(above, ast.For) and above.body == [waits] and not names_in(above.iter) & {"range"}
            )
            plan.remove(
                above if loops and isinstance(above, ast.For) else waits,
                RULE,
                "the launcher waits for the processes",
            )
