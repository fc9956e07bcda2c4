"""CT105: a whole model that comes out of a file, `model = torch.load("best.pt")`, comes to its process's device.

The main process has saved it from its own. Weights in a dictionary go by `load_state_dict` to where the model is.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import written

from .accelerator import Accelerators

RULE = "CT105"
_OF_MODELS = ("eval", "train", "parameters", "named_parameters")
_DEPTH = 3
REASON = "the file has the device of the process that saved it"


def plan_loaded(plan: Plan, accelerators: Accelerators) -> None:
    """Plans where models are loaded to, unless the author says it, or moves them afterwards."""
    script, models = plan.script, {text for text, _ in plan.models}
    for call in script.calls:
        statement = script.statement(call)
        if script.dotted(call.func) != "torch.load" or len(call.args) != 1 or not script.is_reached(call):
            continue
        if not isinstance(statement, ast.Assign) or statement.value is not call:
            continue
        text = written(statement.targets[0])
        is_model = text in models or _is_asked(script, script.frame(call), text, 0)
        if is_model and not _says_where(script, call, text):
            code = f"map_location={accelerators.state(call, RULE)}.device"
            plan.add(e.InsertArgument(call, RULE, REASON, transaction=RULE, code=code))


def _is_asked(script: Script, frame: Frame, text: str, depth: int) -> bool:
    """Whether a variable is used as a model, here or where it is given to a function: `best.eval()`, `test(best)`."""
    for read in script.reads(frame, text):
        user = script.parent(read)
        call = script.parent(user) if isinstance(user, ast.Attribute | ast.keyword) else user
        if not isinstance(call, ast.Call):
            continue
        if call.func is user and is_method(call, *_OF_MODELS):
            return True
        for function in script.run_by(call) if call.func is not user and depth < _DEPTH else ():
            names = [name for name, one in script.given_by(call, function).items() if one is read]
            if any(_is_asked(script, function, name, depth + 1) for name in names):
                return True
    return False


def _says_where(script: Script, call: ast.Call, model: str) -> bool:
    """Whether the author names the device, or moves the model below."""
    moves = (one for one in script.calls_in(script.frame(call)) if is_method(one, "to", "cuda", "cpu"))
    is_moved = any(written(one.func.value) == model and one.lineno > call.lineno for one in moves)
    return is_moved or any(keyword.arg == "map_location" for keyword in call.keywords)
