"""CT201 by use: rows that a script counts by its batch size, `seen += args.batch_size`, beside the number of all rows.

A process sees its share of them: where the count is taken from, or divided by, `len(rows)`, each step counts those of all.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script, names_in
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk

RULE = "CT201"
REASON = "all processes together see so many rows in a step"
_MEET = ast.Sub | ast.Div | ast.FloorDiv | ast.Mod


def plan_counted_rows(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Multiplies what each step counts by the processes."""
    sizes = {last_name(k.value) for call in plan.script.calls for k in call.keywords if _is_size(k)} - {""}
    for data in roles.data:
        for one in data.loop.body if isinstance(data.loop, ast.For) else ():
            if not isinstance(one, ast.AugAssign) or not isinstance(one.op, ast.Add):
                continue
            if last_name(one.value) in sizes and _meets_all(plan.script, data, written(one.target)):
                code = f"{{it}} * {accelerators.at(one)}.num_processes"
                plan.replace(one.value, RULE, REASON, code, it=one.value)


def _is_size(given: ast.keyword) -> bool:
    return (given.arg or "").lower().replace("_", "") == "batchsize"


def _meets_all(script: Script, data: Data, count: str) -> bool:
    """Whether the loop takes from a count, or divides it by, a length that is not its loader's."""
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, _MEET)
        and count in names_in(node.left)
        and any(_is_of_rows(script, data, name) for name in names_in(node.right))
        for node in walk(data.loop or data.node)
    )


def _is_of_rows(script: Script, data: Data, name: str) -> bool:
    values = script.values(data.frame, name)
    return bool(values) and all(
        isinstance(one, ast.Call)
        and last_name(one.func) == "len"
        and [*map(written, one.args)] != [written(data.node)]
        for one in values
    )
