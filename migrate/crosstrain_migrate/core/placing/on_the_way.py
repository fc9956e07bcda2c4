"""What runs once on the way from the script's own file to its training: there its author chooses a device."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, written


def frames_to_training(script: Script, roles: Roles, home: Frame) -> list[Frame]:
    """The function that begins the training, and what runs once on the way from the script's own file to it."""
    return [home, *(f for f in _on_the_way(script, roles) if f is not home)]


def _on_the_way(script: Script, roles: Roles) -> list[Frame]:
    """The script's own file and those of its functions that are called once, on the way to the training."""
    found: list[Frame] = [script.entry]
    work: list[Frame] = list(roles.frames)
    seen = set(work)
    while work:
        frame = work.pop()
        calls = (
            [*script.callers(frame), *_choosing_callers(script, frame)] if is_function_frame(frame) else []
        )
        once = len(calls) == 1 and script.class_of(frame) is None and not script.loops_around(calls[0])
        if once and script.is_entry(frame):
            found.append(frame)
        for call in calls:
            caller = script.frame(call)
            if caller not in seen:
                seen.add(caller)
                work.append(caller)
    return found


def _choosing_callers(script: Script, function: Function) -> list[ast.Call]:
    """The calls of a variable that is the function by a condition: `fit = fit_pairs if args.pairs else fit_rows`."""
    chosen = [
        n for n in script.table.each(ast.IfExp) if function.name in (written(n.body), written(n.orelse))
    ]
    bound = {
        (script.frame(one), written(target))
        for one in chosen
        if isinstance(assign := script.parent(one), ast.Assign)
        for target in assign.targets
    }
    return [call for call in script.calls if (script.frame(call), written(call.func)) in bound]
