"""CT105: a whole model that comes out of a file, by itself or in a dictionary, `model = torch.load("best.pt")["model"]`, comes to
its process's device, and so does an optimizer, whose momentum nothing moves.

The main process has saved it from its own. Weights in a dictionary go by `load_state_dict` to where the model is.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import last_name, written

from .accelerator import Accelerators

RULE = "CT105"
_OF_MODELS = ("eval", "train", "parameters", "named_parameters")
_DEPTH = 3
REASON = "the file has the device of the process that saved it"


def plan_loaded(plan: Plan, accelerators: Accelerators) -> None:
    """Plans where models and optimizers are loaded to, unless the author says it, or moves them afterwards."""
    script = plan.script
    held = {text for text, _ in plan.models} | {one.text for one in accelerators.roles.optimizers}
    for call in script.calls:
        statement = script.statement(call)
        if script.dotted(call.func) != "torch.load" or len(call.args) != 1 or not script.is_reached(call):
            continue
        if not isinstance(statement, ast.Assign) or statement.value is not call:
            continue
        frame, text = script.frame(call), written(statement.targets[0])
        entries = [
            part
            for read in script.reads(frame, text)
            if isinstance(part := script.parent(read), ast.Subscript)
        ]
        bound = (one for part in entries if isinstance(one := script.parent(part), ast.Assign))
        texts = [text, *(written(one.targets[0]) for one in bound)]
        found = [one for one in texts if one in held or _is_asked(script, frame, one, 0)]
        # `torch.set_rng_state(checkpoint["rng"])` takes it from the CPU
        sets_draws = any(
            last_name(getattr(script.parent(one), "func", one)) == "set_rng_state" for one in entries
        )
        if found and not sets_draws and not all(_says_where(script, call, one) for one in found):
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
        given = script.given_on(read) if depth < _DEPTH else []
        if any(_is_asked(script, function, name, depth + 1) for function, name in given):
            return True
    return False


def _says_where(script: Script, call: ast.Call, model: str) -> bool:
    """Whether the author names the device, or moves the model below."""
    moves = (one for one in script.calls_in(script.frame(call)) if is_method(one, "to", "cuda", "cpu"))
    below = (one for one in moves if written(one.func.value) == model and one.lineno > call.lineno)
    is_moved = any(not _is_in_other_branch(script, one, call) for one in below)
    return is_moved or any(keyword.arg == "map_location" for keyword in call.keywords)


def _is_in_other_branch(script: Script, node: ast.AST, call: ast.Call) -> bool:
    """Whether a test takes either the way to a node or the one to a call."""
    tests = [one for one in script.around(call) if isinstance(one, ast.If) and one in script.around(node)]
    return any(_is_within(script, test.body, node) != _is_within(script, test.body, call) for test in tests)


def _is_within(script: Script, block: list[ast.stmt], node: ast.AST) -> bool:
    return any(one in block for one in script.around(node))
