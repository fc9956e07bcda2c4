"""For CT202: gradients by parameters that no backward pass averages.

What:   `torch.autograd.grad(loss, model.parameters())` that the loss of a step is not computed from.
Why:    What is done with them (a step by hand, `p.grad = g`) would part the processes' models.
Refuses: the script; inner steps that a loss goes through (MAML), and gradients by rows, are each process's own.
"""

from __future__ import annotations

from crosstrain_migrate.rules.base import Context, refuse

from .batch_values import batch_values

RULE = "CT202"


def check(context: Context) -> None:
    facts = context.facts
    for call in facts.calls_to("torch.autograd.grad"):
        found = [s for s in batch_values(facts, call) if s.loader in context.subject.train_loaders]
        by_parameters = any(s.kind == "other" and call in s.origins for s in found)
        if by_parameters and call not in facts.loss_slice and not facts.in_module(call):
            raise refuse(
                RULE,
                call,
                "these gradients are those of this process's share: nothing averages them over processes",
                "call backward on the loss, and read the gradients from the parameters",
            )
