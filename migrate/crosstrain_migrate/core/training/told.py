"""CT201 by use: an epoch that is told by the number of all rows, `count % len(rows)`, where each process takes its share of the rows."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import turns_of
from crosstrain_migrate.core.reading.certain import is_array
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

RULE = "CT201"
OF_ROWS = "an epoch has as many steps as a process has rows"


def plan_counted_epochs(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Divides the number of all rows by the processes where the steps of one are counted in it."""
    for data in roles.data:
        if not isinstance(data.loop, ast.For) or not is_array(plan.script, data.frame, data.node):
            continue
        lengths, stores = _lengths_in(plan.script, data), list(map(written, stores_in(data.loop)))
        counters = {name for name in turns_of(data.loop) if stores.count(name) == 1}  # nothing else sets them
        for node in walk(data.loop):
            if (
                isinstance(node, ast.BinOp)
                and isinstance(node.op, ast.Mod | ast.Div | ast.FloorDiv)
                and ast.unparse(node.right) in lengths
                and names_in(node.left) & counters
            ):
                template = f"({plan.share_of(node.right, accelerators.at(node))})"
                plan.replace(node.right, RULE, OF_ROWS, template, it=node.right)


def _lengths_in(script: Script, data: Data) -> set[str]:
    """`len(rows)` of `np.random.permutation(len(rows))`, or of the variable that holds it."""
    made = [data.node, *(v for name in names_in(data.node) for v in script.values(data.frame, name))]
    calls = [n for n in walk_all(made) if isinstance(n, ast.Call)]
    return {ast.unparse(one) for one in calls if last_name(one.func) == "len"}
