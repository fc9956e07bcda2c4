"""CT202: backward passes for the gradients of inputs that some processes make more often than others.

A pass that reaches a prepared model is averaged, whatever it is for, so each process waits in it for the others. An attack
that stops by its own rows, or one on the batches of an evaluation, of which one process may have more, is kept local.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from crosstrain_migrate.core.plan import Plan
from crosstrain_migrate.core.reading.forms import is_function_frame, is_method, names_in
from crosstrain_migrate.core.reading.inputs import own_leaves, reads_own_gradients
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import Function, last_name, written
from crosstrain_migrate.syntax.walks import walk, walk_all

RULE = "CT202"
GROUP = "attacks"
_DEPTH = 3
REASON = "each process makes these passes for rows of its own"


def plan_local_passes(plan: Plan, roles: Roles, dealt: Sequence[ast.For]) -> None:
    """dealt: the evaluations of which each process does some batches."""
    script = plan.script
    trains = [one.call for one in roles.backwards]
    for call in script.calls:
        frame = script.frame(call)
        if call in trains or not is_method(call, "backward") or not is_function_frame(frame):
            continue
        if not reads_own_gradients(script, frame) or not is_statement_call(script, call):
            continue
        if not _is_left_early(script, call) and not _is_of_dealt(script, frame, dealt, 0):
            continue
        models = _models(script, frame)
        if len(models) != 1:
            remedy = "put it under `with accelerator.no_sync(model):`"
            plan.note(RULE, call, "this pass waits for the other processes, which may make fewer", remedy)
            continue
        plan.imports(call, "Accelerator", GROUP)
        context = f"Accelerator().no_sync({models.pop()})"
        plan.within(script.statement(call), RULE, REASON, context, GROUP)


def _is_left_early(script: Script, call: ast.Call) -> bool:
    """Whether a loop around a pass ends where its function finds that it has enough."""
    return any(isinstance(n, ast.Break | ast.Return) for n in walk_all(script.loops_around(call)))


def _is_of_dealt(script: Script, frame: Function, dealt: Sequence[ast.For], depth: int) -> bool:
    """Whether a function is called for the batches of an evaluation that is dealt."""
    for call in script.callers(frame) if depth < _DEPTH else ():
        caller = script.frame(call)
        if any(script.table.is_inside(call, loop) for loop in dealt):
            return True
        if is_function_frame(caller) and _is_of_dealt(script, caller, dealt, depth + 1):
            return True
    return False


def _models(script: Script, frame: Function) -> set[str]:
    """What a function calls on the tensors whose gradients it reads; of several what it puts in a mode."""
    found = {
        written(call.func)
        for call in script.calls_in(frame)
        if _may_be_model(script, frame, call.func) and _is_given_leaf(script, frame, call)
    }
    asked = {
        written(call.func.value)
        for call in script.calls_in(frame)
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("eval", "train", "zero_grad")
    }
    return found & asked if len(found) > 1 else found


def _is_given_leaf(script: Script, frame: Function, call: ast.Call) -> bool:
    """Whether a call is given one of these tensors, or a plain expression of it: a loss is given a model's answer."""
    leaves = own_leaves(script, frame)
    return any(
        names_in(one) & leaves and not any(isinstance(n, ast.Call) for n in walk(one)) for one in call.args
    )


def _may_be_model(script: Script, frame: Function, func: ast.expr) -> bool:
    """Whether what is called is a variable or an attribute of the object, and no function of the project or of Python."""
    if isinstance(func, ast.Name):
        is_variable = func.id in script.parameters(frame) or script.values(script.module(frame), func.id)
        return bool(is_variable) and not script.functions(func.id)
    is_own = isinstance(func, ast.Attribute) and written(func.value) == "self"
    return is_own and not script.functions(last_name(func))
