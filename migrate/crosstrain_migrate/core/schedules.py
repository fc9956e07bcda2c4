"""Which schedules follow a loop that becomes shorter, so that the runtime moves them by all processes' batches."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import last_name
from crosstrain_migrate.syntax.walks import walk

from .roles import Roles, Stepped
from .script import Loop, Script, names_in


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
