"""CT201 by use: what counts the steps of one process and is told those of all, an average of weights or a bar.

`EMA(model, steps)`, `tqdm(total=steps)` of a number that is computed from the loader's length above its `prepare`: a schedule
of torch is made for it, and what the training loop asks with its own count, or moves by one, is given the process's share. So is an epoch, `count % len(rows)`, where each process takes its share of the rows.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan, share_of
from crosstrain_migrate.core.reading.alike import counters_of, turns_of
from crosstrain_migrate.core.reading.certain import is_array
from crosstrain_migrate.core.reading.data import Data
from crosstrain_migrate.core.reading.forms import is_method, names_in
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name, place_of, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all

RULE = "CT201"
REASON = "each process makes its share of the steps"
_DEPTH = 4
OF_ROWS = "an epoch has as many steps as a process has rows"


def plan_told_steps(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Divides the number of all steps by the processes where the steps of one are counted in it."""
    for data in roles.data:
        if not isinstance(data.loop, ast.For) or not isinstance(data.node, ast.Name):
            continue
        for told in _told(plan.script, data, data.loop):
            if place_of(told) < place_of(data.loop) and _is_length(plan, data, told, 0):
                plan.replace(told, RULE, REASON, share_of(told, accelerators.at(told)), it=told)


def _told(script: Script, data: Data, loop: ast.For) -> list[ast.Name]:
    """The variables that are given to what the loop moves on: to an object of the project that it asks with its own count,
    and to a bar."""
    counters = {*counters_of(loop, script), *turns_of(loop)}
    found: list[ast.expr] = []
    for call in (n for n in walk(loop) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)):
        counts = any(isinstance(given, ast.Name) and given.id in counters for given in call.args)
        for made in script.values(data.frame, written(call.func).rpartition(".")[0]):
            if isinstance(made, ast.Call) and counts and script.class_made(made):
                found += [*made.args, *(one.value for one in made.keywords)]
            elif isinstance(made, ast.Call) and is_method(call, "update") and last_name(made.func) == "tqdm":
                found += [one.value for one in made.keywords if one.arg == "total"]
    return [one for one in dict.fromkeys(found) if isinstance(one, ast.Name)]


def _is_length(plan: Plan, data: Data, node: ast.expr, depth: int) -> bool:
    """Whether a number is a whole multiple, or part, of the loader's length, where that has all batches yet."""
    if isinstance(node, ast.Name) and depth < _DEPTH:
        values = plan.script.values(data.frame, node.id)
        return any(_is_length(plan, data, value, depth + 1) for value in values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult | ast.FloorDiv):
        return any(_is_length(plan, data, one, depth) for one in (node.left, node.right))
    if not isinstance(node, ast.Call) or last_name(node.func) != "len" or not node.args:
        return False
    anchor = plan.prepared.get((data.frame, written(data.node)))
    is_whole = anchor is None or place_of(node) < place_of(anchor)
    return written(node.args[0]) == written(data.node) and is_whole


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
                template = f"({share_of(node.right, accelerators.at(node))})"
                plan.replace(node.right, RULE, OF_ROWS, template, it=node.right)


def _lengths_in(script: Script, data: Data) -> set[str]:
    """`len(rows)` of `np.random.permutation(len(rows))`, or of the variable that holds it."""
    made = [data.node, *(v for name in names_in(data.node) for v in script.values(data.frame, name))]
    calls = [n for n in walk_all(made) if isinstance(n, ast.Call)]
    return {ast.unparse(one) for one in calls if last_name(one.func) == "len"}
