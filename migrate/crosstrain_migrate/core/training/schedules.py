"""Schedules of loops that become shorter: those that the runtime moves by all processes' batches, and learning rates
that the script computes from the rows that it has counted.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.alike import comes_alike, what_may_differ
from crosstrain_migrate.core.reading.roles import Roles, Stepped
from crosstrain_migrate.core.reading.script import Loop, Script, names_in
from crosstrain_migrate.syntax.nodes import last_name, written
from crosstrain_migrate.syntax.walks import walk


def shortened(script: Script, roles: Roles) -> list[Stepped]:
    """The schedulers of loops over data that is divided: one that makes a number of steps of its own stays as it is."""
    divided = [one.loop for one in roles.data if one.loop is not None]
    if len(divided) == len(roles.data) > 0:
        return roles.schedulers
    return [
        one
        for one in roles.schedulers
        if any(loop in divided or _counts_batches(script, loop) for loop in script.loops_around(one.call))
    ]


def _counts_batches(script: Script, loop: Loop) -> bool:
    """Whether a loop that takes its batches by `next` makes as many steps as a loader has batches."""
    head = loop.test if isinstance(loop, ast.While) else loop.iter
    frame = script.frame(loop)
    behind = [head, *(value for name in names_in(head) for value in script.values(frame, name))]
    if any(isinstance(n, ast.Call) and last_name(n.func) == "len" for one in behind for n in walk(one)):
        return True
    handlers = [n for n in walk(loop) if isinstance(n, ast.ExceptHandler)]
    return any(
        one.type is not None
        and last_name(one.type) == "StopIteration"
        and any(isinstance(n, ast.Break) for n in walk(one))
        for one in handlers
    )


def plan_counted_rates(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    """Counts the rows of all processes where the learning rate is computed from their number."""
    for data in roles.data:
        loop = data.loop
        if not isinstance(loop, ast.For):
            continue
        nodes = [node for statement in loop.body for node in walk(statement)]
        batch, rates = _computed_from(nodes, names_in(loop.target)), _decides_rate(nodes)
        for node in nodes:
            if not isinstance(node, ast.AugAssign) or written(node.target) not in rates:
                continue
            if not names_in(node.value) & batch or plan.is_replaced(node.value):
                continue
            if comes_alike(plan.script, node, loop, what_may_differ(plan.script, loop)):
                code = f'{accelerators.at(node)}.reduce({{it}}, "sum")'
                reason = "the learning rate follows the rows of all processes"
                plan.replace(node.value, "CT602", reason, code, it=node.value)


def _computed_from(nodes: list[ast.AST], names: set[str]) -> set[str]:
    """The variables that hold these, or what is computed from them."""
    found = set(names)
    for node in nodes:
        if isinstance(node, ast.Assign) and names_in(node.value) & found:
            found |= {name for target in node.targets for name in names_in(target)}
    return found


def _decides_rate(nodes: list[ast.AST]) -> set[str]:
    """What a learning rate is computed from, where it is set by hand: `group["lr"] = ...`."""
    assigns = [node for node in nodes if isinstance(node, ast.Assign)]
    found: set[str] = set()
    for _ in range(4):
        for node in assigns:
            sets = any(isinstance(t, ast.Subscript) and ast.unparse(t.slice) == "'lr'" for t in node.targets)
            if sets or found & {written(target) for target in node.targets}:
                found |= {written(n) for n in walk(node.value) if isinstance(n, ast.Name | ast.Attribute)}
    return found
