"""CT201 by use: the number of all batches, `len(rows) // size`, that is read beside a loop's own count of them."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import counters_of
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.training.lengths import stands_by_counter
from crosstrain_migrate.syntax.walks import walk

from .whole_counts import WholeCounts

RULE = "CT201"
REASON = "a process counts its share of the batches"


def plan_all_batches(plan: Plan, accelerators: Accelerators, data: Data) -> None:
    """Divides it by the processes: `print(i, len(rows) // size)`."""
    loop = data.loop
    if not isinstance(loop, ast.For) or not counters_of(loop):
        return
    counts = WholeCounts(plan, data, loop)
    for node in (n for one in loop.body for n in walk(one)):
        is_rounded = isinstance(node, ast.Name | ast.Attribute) or (
            isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv)
        )
        if (
            not is_rounded
            or not isinstance(node, ast.expr)
            or not counts.is_of_rows(node)
            or not counts.counts_all(node)
            or not stands_by_counter(plan.script, node)
        ):
            continue
        accelerator = accelerators.may_be_at(node)
        if accelerator is not None:
            whole = "({all})" if isinstance(node, ast.BinOp) else "{all}"
            plan.replace(node, RULE, REASON, f"-(-{whole} // {accelerator}.num_processes)", all=node)
