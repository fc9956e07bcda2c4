"""CT202 and CT203 by use: backward and clipping go through the accelerator, where one is at hand.

A plain `loss.backward()` averages the gradients of whatever is prepared as well (contract, decisions 1 and 31), and every
process clips the same averaged gradients, so both may stay where no accelerator is at hand.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import last_name, written

from .accelerator import Accelerators
from .plan import Plan
from .roles import Roles
from .script import Frame, Script, is_method

BACKWARD, CLIPPING = "CT202", "CT203"
_DEPTH = 4


def plan_backward(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    for one in roles.backwards:
        call = one.call
        if accelerators.may_be_at(call) is None or not is_method(call, "backward"):
            continue
        assert isinstance(call.func, ast.Attribute)
        if call.args or any(keyword.arg in (None, "gradient", "inputs") for keyword in call.keywords):
            continue  # loss.backward(gradient): averaged as it stands
        loss = call.func.value  # scaler.scale(loss): the author's scaler stays in use
        more = "".join(f", {keyword.arg}={{k{n}}}" for n, keyword in enumerate(call.keywords))
        holes = {f"k{n}": keyword.value for n, keyword in enumerate(call.keywords)}
        template = f"{accelerators.name}.backward({{loss}}{more})"
        plan.replace(
            call, BACKWARD, "the gradients are averaged over the processes", template, loss=loss, **holes
        )


def plan_clipping(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    script = plan.script
    scaled = any(is_method(call, "unscale_") for call in script.calls)
    for call in script.calls:
        name = script.dotted(call.func)
        if not name.endswith(("clip_grad_norm_", "clip_grad_value_")) or not name.startswith(
            "torch.nn.utils"
        ):
            continue
        if accelerators.at_hand(call) and not scaled:
            reason = "gradients are clipped once they are averaged"
            plan.replace(
                call.func,
                CLIPPING,
                reason,
                f"{accelerators.name}.{name.rpartition('.')[2]}",
                "clipping",
            )


def sums_over_rows(script: Script, roles: Roles) -> bool:
    """Whether the code shows that the loss is a sum over rows: then gradients are added, not averaged."""
    return any(_is_sum(script, one.frame, loss_of(one.call), 0) for one in roles.backwards)


def loss_of(call: ast.Call) -> ast.expr:
    return call.args[0] if call.args and not is_method(call, "backward") else call.func.value  # type: ignore[attr-defined]


def _is_sum(script: Script, frame: Frame, node: ast.AST, depth: int) -> bool:
    """Whether every term of a loss is the sum of a loss function, undivided."""
    if depth > _DEPTH:
        return False
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return all(_is_sum(script, frame, side, depth) for side in (node.left, node.right))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return any(_is_sum(script, frame, side, depth) for side in (node.left, node.right))
    if isinstance(node, ast.Name | ast.Attribute):
        values = [v for v in script.values(frame, written(node)) if not isinstance(v, ast.Constant)]
        return bool(values) and all(_is_sum(script, frame, value, depth + 1) for value in values)
    if not isinstance(node, ast.Call):
        return False
    if _asks_for_sum(node):
        return True
    return _calls_sum(script, node, depth)


def _calls_sum(script: Script, call: ast.Call, depth: int) -> bool:
    """Whether a call is of a loss object made with `reduction="sum"`, or of a function that returns such a loss."""
    text = written(call.func)
    made = [v for one in script.frames for v in script.values(one, text)]
    if made and all(isinstance(v, ast.Call) and _asks_for_sum(v) for v in made):
        return True
    functions = script.functions(script.last(call.func))
    returns = [
        (function, node.value)
        for function in functions
        for node in script.within(function)
        if isinstance(node, ast.Return) and node.value is not None
    ]
    return bool(returns) and all(_is_sum(script, one, value, depth + 1) for one, value in returns)


def _asks_for_sum(call: ast.Call) -> bool:
    for keyword in call.keywords:
        if isinstance(keyword.value, ast.Constant):
            if keyword.arg == "reduction" and keyword.value.value == "sum":
                return True
            if keyword.arg == "size_average" and keyword.value.value is False:
                return not any(k.arg == "reduce" for k in call.keywords)
    return False


def closures_of_line_search(script: Script) -> list[ast.Call]:
    """Where an LBFGS is made: a line search on one process's loss takes another number of evaluations on each."""
    return [call for call in script.calls if last_name(call.func) == "LBFGS"]
