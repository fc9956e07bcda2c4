"""CT105: a whole model that comes out of a file, `model = torch.load("best.pt")`, comes to its process's device.

The main process has saved it from its own. Weights in a dictionary go by `load_state_dict` to where the model is.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.script import Script, is_method
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import written

from .accelerator import Accelerators

RULE = "CT105"
REASON = "the file has the device of the process that saved it"


def plan_loaded(plan: Plan, accelerators: Accelerators) -> None:
    """Plans where the models that train are loaded to, unless the author says it, or moves them afterwards."""
    script, models = plan.script, {text for text, _ in plan.models}
    for call in script.calls:
        statement = script.statement(call)
        if script.dotted(call.func) != "torch.load" or len(call.args) != 1 or not script.is_reached(call):
            continue
        if not isinstance(statement, ast.Assign) or statement.value is not call:
            continue
        text = written(statement.targets[0])
        if text in models and not _says_where(script, call, text):
            device = f"{accelerators.name if accelerators.at_hand(call) else plan.state(call, RULE)}.device"
            plan.add(e.InsertArgument(call, RULE, REASON, transaction=RULE, code=f"map_location={device}"))


def _says_where(script: Script, call: ast.Call, model: str) -> bool:
    """Whether the author names the device, or moves the model below."""
    moves = (one for one in script.calls_in(script.frame(call)) if is_method(one, "to", "cuda", "cpu"))
    is_moved = any(written(one.func.value) == model and one.lineno > call.lineno for one in moves)
    return is_moved or any(keyword.arg == "map_location" for keyword in call.keywords)
