"""CT203: clipping goes through the accelerator

What:   `clip_grad_norm_` and `clip_grad_value_` (and their old spellings without the underscore).
Why:    Gradients must be averaged and unscaled before they are clipped.

Example (step):
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
Becomes (step):
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
Stays (after_step):
    vector = nn.utils.parameters_to_vector(model.parameters())
"""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e

RULE = "CT203"
CLIPPERS = {
    "torch.nn.utils.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_norm": "clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_": "clip_grad_value_",
    "torch.nn.utils.clip_grad.clip_grad_value_": "clip_grad_value_",
}
MEANT = frozenset({"parameters", "max_norm", "norm_type", "clip_value"})
# Of torch's functions, and of our runtime's methods; Accelerate's take neither.
MORE = frozenset({"error_if_nonfinite", "foreach"})
HOW = "foreach"  # only how it is computed


def plan(context: Context) -> None:
    for call in context.facts.calls_to(*CLIPPERS):
        if context.requested.mapped and not context.at_hand(call):
            continue  # gradients are whole where the backward pass is the author's
        name = next(CLIPPERS[p] for p in context.facts.paths(call.func) if p in CLIPPERS)
        _check_arguments(context, call)
        context.replace(
            call.func, RULE, "clips the averaged, unscaled gradients", f"{context.accelerator(call)}.{name}"
        )


def _check_arguments(context: Context, call: ast.Call) -> None:
    """Raises Refusal where the accelerator's method does not do what an argument asks for."""
    ours = context.runtime == "crosstrain"
    given = {k.arg: k.value for k in call.keywords}
    unsupported = given.keys() - (MEANT | MORE if ours else MEANT | {HOW})
    if unsupported:
        names = ", ".join(sorted(str(n) for n in unsupported))
        reason = f"the accelerator's method takes no {names}, so what that argument asks for would not happen"
        raise refuse(RULE, call, reason, "leave that argument out")
    if HOW in given and not ours:
        context.edits.append(e.RemoveArgument(call, RULE, argument=given[HOW]))
