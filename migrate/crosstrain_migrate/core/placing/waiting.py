"""CT303: how long the processes of a script's own group wait for each other, which its accelerator is told."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.walks import walk

RULE = "CT303"


def given_timeout(plan: Plan, frame: Frame) -> list[str]:
    """The options of a frame's accelerator for `init_process_group(..., timeout=timedelta(hours=2))`."""
    module = plan.script.module(frame)
    if timeout := timeout_in(plan.script, module):
        plan.imports(frame, "InitProcessGroupKwargs")
        return [f"kwargs_handlers=[InitProcessGroupKwargs(timeout={timeout})]"]
    for call, _ in _given(plan.script):
        reason = "the launcher says how long the processes wait for each other"
        plan.note(RULE, call, reason, "give it the seconds: `crosstrain launch --timeout`")
    return []


def timeout_in(script: Script, module: ast.Module) -> str:
    """What the author's group is given, where a file's imports alone are enough to say it; else nothing."""
    imports = [one for one in module.body if isinstance(one, ast.Import | ast.ImportFrom)]
    known = {(name.asname or name.name).split(".")[0] for one in imports for name in one.names}
    for call, value in _given(script):
        names = {n.id for n in walk(value) if isinstance(n, ast.Name)}
        if script.module(call) is module and names <= known:
            return ast.unparse(value)
    return ""


def _given(script: Script) -> list[tuple[ast.Call, ast.expr]]:
    groups = [call for call in script.calls if script.makes_group(call) and script.is_reached(call)]
    given = [(call, one.value) for call in groups for one in call.keywords if one.arg == "timeout"]
    return [(call, value) for call, value in given if not isinstance(value, ast.Constant)]
