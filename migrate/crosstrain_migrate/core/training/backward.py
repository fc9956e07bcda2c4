"""CT202 and CT203 by use: backward and clipping go through the accelerator, where one is at hand.

A plain `loss.backward()` averages the gradients of whatever is prepared as well (contract, decisions 1 and 31), and every
process clips the same averaged gradients, so both may stay where no accelerator is at hand.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.placing.accelerator import Accelerators
from crosstrain_migrate.core.plan import CORE, Plan
from crosstrain_migrate.core.reading.forms import is_method
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.walks import walk

from .losses import loss_of, sum_and_more, sums_over_rows, unseen_loss
from .observed import Seen

BACKWARD, CLIPPING = "CT202", "CT203"
SUMMED = 'loss_reduction="sum"'


def plan_backward(plan: Plan, roles: Roles, accelerators: Accelerators) -> None:
    for one in roles.backwards:
        call = one.call
        if not is_method(call, "backward"):
            continue
        counts, name = _counts_gpus(plan.script, call), accelerators.may_be_at(call)
        if name is None and SUMMED in accelerators.options:  # a plain one averages
            name = accelerators.anywhere(call)
        if name is None and not counts:
            continue
        assert isinstance(call.func, ast.Attribute)
        given = call.args if not counts else ()  # one for each replica's loss goes with these
        if given or any(keyword.arg in (None, "gradient", "inputs") for keyword in call.keywords):
            continue  # loss.backward(gradient): averaged as it stands
        loss = call.func.value  # scaler.scale(loss): the author's scaler stays in use
        more = "".join(f", {keyword.arg}={{k{n}}}" for n, keyword in enumerate(call.keywords))
        holes = {f"k{n}": keyword.value for n, keyword in enumerate(call.keywords)}
        template = (
            f"{name}.backward({{loss}}{more})" if name is not None else f"{{loss}}.backward({more[2:]})"
        )
        # A plain one averages too, unless losses are summed.
        group = CORE if accelerators.options else "backward"
        reason = "the gradients are averaged over the processes"
        plan.replace(call, BACKWARD, reason, template, group, loss=loss, **holes)


def _counts_gpus(script: Script, call: ast.Call) -> bool:
    """`loss.backward(torch.ones(torch.cuda.device_count()))`, of a DataParallel's losses"""
    calls = (n for one in call.args for n in walk(one) if isinstance(n, ast.Call))
    return any(script.dotted(one.func) == "torch.cuda.device_count" for one in calls)


def note_apex(plan: Plan) -> None:
    """Says that the mixed precision of apex stays: precision that is asked of the launcher comes on top of it."""
    for call in plan.script.calls:
        if plan.script.dotted(call.func) == "apex.amp.initialize":
            reason = "apex keeps choosing the precision and scaling the loss"
            remedy = "ask for no other precision, or replace it by `Accelerator(mixed_precision=...)`"
            plan.note(BACKWARD, call, reason, remedy)


def plan_reduction(plan: Plan, roles: Roles, seen: Seen | None) -> list[str]:
    """The Accelerator's arguments where losses are sums over rows; says what is assumed, or what a run has shown.

    seen: what a run of the script has shown, which counts for more than what the code says.
    """
    shown = {kind: one.call for one in roles.backwards if seen and (kind := seen.kind(loss_of(one.call)))}
    if seen is not None and len(shown) == 1:
        (kind, call), *_ = shown.items()
        plan.observed(BACKWARD, call, f"the loss is a {kind} over the rows of the batch", seen.run)
        return [SUMMED] if kind == "sum" else []
    if sums_over_rows(plan.script, roles):
        return [SUMMED]
    if (summed := sum_and_more(plan.script, roles)) is not None:
        reason = "the loss adds a sum over rows and a term that the code does not show: it is taken for a sum"
        plan.note(BACKWARD, summed, reason, 'write `loss_reduction="mean"` where it is divided by the rows')
        return [SUMMED]
    if (loss := unseen_loss(plan.script, roles)) is not None:
        plan.assume("mean", BACKWARD, loss, "the loss is a mean over the rows of the batch")
    return []


def plan_clipping(plan: Plan, accelerators: Accelerators) -> None:
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
                call.func, CLIPPING, reason, f"{accelerators.name}.{name.rpartition('.')[2]}", "clipping"
            )
