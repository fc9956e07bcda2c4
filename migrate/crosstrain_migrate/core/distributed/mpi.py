"""CT303 for MPI: `Get_rank()` is 0 in every process that the launcher starts, so that the runtime tells the number instead.

A function that also communicates by MPI stays as it is: each process is a world of its own there, in which it does all.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk_all

RULE = "CT303"
REASON = "the launcher's processes are no MPI processes: the runtime numbers them"
_TELLS = {
    "Get_rank": "process_index",
    "rank": "process_index",
    "Get_size": "num_processes",
    "size": "num_processes",
}


def plan_mpi(plan: Plan) -> None:
    """Plans the edits of what asks MPI for a process's number."""
    script = plan.script
    for frame in script.frames:
        asked = list(_asked(script, frame))
        if any(node.attr not in _TELLS for node in asked):
            continue
        for node in asked:
            parent = script.parent(node)
            whole = parent if isinstance(parent, ast.Call) and parent.func is node else node
            if script.is_reached(node) and not any(plan.is_replaced(one) for one in script.around(whole)):
                told = f"{plan.state(node)}.{_TELLS[node.attr]}"
                plan.replace(whole, RULE, REASON, told)


def _asked(script: Script, frame: Frame) -> Iterator[ast.Attribute]:
    """What a frame asks of MPI's world."""
    for node in script.within(frame):
        if isinstance(node, ast.Attribute) and _is_world(script, frame, node.value):
            yield node


def _is_world(script: Script, frame: Frame, node: ast.expr) -> bool:
    if script.dotted(node) == "mpi4py.MPI.COMM_WORLD":
        return True
    places = (frame, script.module(frame))
    values = [value for place in places for value in script.values(place, written(node))]
    return any(script.dotted(n) == "mpi4py.MPI.COMM_WORLD" for n in walk_all(values))
