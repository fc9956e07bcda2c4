"""CT502 by use: the main process saves weights, and they are there for all when the call returns."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.script import is_statement_call

from . import writers
from .audience import Audience
from .files import Files
from .stamps import is_stamped

RULE = "CT502"
REASON = "the main process writes the file, and it is there for all when the call returns"


def plan_saving(plan: Plan, accelerators: Accelerators, files: Files, audience: Audience) -> None:
    """Plans `accelerator.save` for `torch.save`. Where each process has a path of its own, one process saves."""
    script = plan.script
    for call in script.calls:
        if not writers.saves_weights(script, call) or script.in_lambda(call) or not audience.is_all(call):
            continue
        path = writers.path_of_write(script, call)
        differs = path is not None and is_stamped(script, path)
        if is_statement_call(script, call) and (differs or accelerators.is_early(call)):
            files.guard(script.statement(call), call)
        elif not accelerators.is_too_soon(call):
            plan.replace(call.func, RULE, REASON, f"{_accelerator(plan, accelerators, call)}.save", "saving")
        else:
            files.leave(call)


def _accelerator(plan: Plan, accelerators: Accelerators, call: ast.Call) -> str:
    accelerator = accelerators.may_be_at(call)
    if accelerator is None:
        plan.imports(call, "Accelerator", "saving")
        return "Accelerator()"
    return accelerator
