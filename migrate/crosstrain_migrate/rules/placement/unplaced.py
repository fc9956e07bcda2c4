"""CT105 for scripts that choose no device: `prepare` puts the model on one, but its other inputs stay on the CPU.

Where no DataLoader places anything, the model stays on the CPU, too: every process does the same work anyway.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import External, FromBatch
from crosstrain_migrate.rules.base import Context

from .device import Placement

RULE = "CT105"
GIVEN_ON_THE_CPU = (
    "this script chooses no device: the prepared model is on the process's own, and what it is given here is on the CPU",
    "move it with `.to(accelerator.device)`, or launch with --cpu",
)
STAYS_ON_THE_CPU = (
    "this script selects no device and has no DataLoader that places the model's inputs, so it stays on the CPU",
    "to train on a GPU, remove `cpu=True` and move the model's inputs with `.to(accelerator.device)`",
)


def plan(context: Context, placement: Placement) -> None:
    if placement.stripped or _chooses_a_device(context):
        return
    call = next((c for c in context.facts.calls if _is_given_something_else(context, c)), None)
    if call is None:
        return
    if context.facts.train_loaders:
        context.note(RULE, call, *GIVEN_ON_THE_CPU)
    else:
        context.options = {"cpu": "True", **context.options}
        context.note(RULE, call, *STAYS_ON_THE_CPU)


def _chooses_a_device(context: Context) -> bool:
    return any(isinstance(v, External) and v.path == "torch.device" for v in context.facts.all_values)


def _is_given_something_else(context: Context, call: ast.Call) -> bool:
    """A call of a prepared model with something that no prepared loader yields."""
    facts = context.facts
    if not call.args or facts.in_module(call) or not facts.of(call.func) & set(context.subject.models):
        return False
    batch_values = [v for v in facts.of(call.args[0]) if isinstance(v, FromBatch)]
    return not any(s.loader in context.subject.loaders for s in batch_values)
