"""For CT602: a trained loss that decides, and whose batches could not be followed to a loader.

What:   Where it is read, it becomes the mean over the processes: `accelerator.reduce(loss, reduction="mean")`.
Why:    It goes backward, so it is the loss of what this process trains on; the processes would leave a loop, or keep a
        best model, each by its own. Where all of them train on the same, the mean is the same number.
Before: `return loss.item()`, and `if step() > limit: break` where it is called
After:  `return accelerator.reduce(loss, reduction="mean").item()`
"""

from __future__ import annotations

from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values
from .bindings import receiver
from .flow import Flow

RULE = "CT602"


def plan(context: Context) -> None:
    facts = context.facts
    planned = {edit.node for edit in context.edits}
    for _, loss in facts.backward_calls:
        made = facts.bindings(loss)
        if not made or batch_values(facts, loss):
            continue  # what comes of a loader's batches is for the other rules
        for call in facts.method_calls("item"):
            value = receiver(call, "item")
            if (
                value is not None
                and facts.bindings(value) == made
                and context.reachable(call)
                and not planned & set(walk(call))
                and Flow(facts, call).decisions
            ):
                template = f'{context.accelerator(call)}.reduce({{x}}, reduction="mean")'
                context.replace(value, RULE, "it decides: the mean over the processes", template, x=value)
                context.collective.add(call)
