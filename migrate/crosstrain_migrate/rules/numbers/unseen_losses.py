"""For CT602: a trained loss that decides, and whose batches could not be followed to a loader.

What:   Where it is read, it becomes the mean over the processes: `accelerator.reduce(loss, reduction="mean")`.
Why:    It goes backward, so it is the loss of what this process trains on; the processes would leave a loop, or keep a
        best model, each by its own. Where all of them train on the same, the mean is the same number.
Before: `return loss.item()`, and `if step() > limit: break` where it is called
After:  `return accelerator.reduce(loss, reduction="mean").item()`
"""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values
from .flow import Flow

RULE = "CT602"


def plan(context: Context) -> None:
    facts = context.facts
    planned = {edit.node for edit in context.edits}
    for _, loss in facts.backward_calls:
        if not isinstance(loss, ast.Name) or batch_values(facts, loss):
            continue  # what comes of a loader's batches is for the other rules
        made = facts.interp.reaching.get(loss, frozenset())
        for read in facts.each(ast.Call):
            if _reads(context, read, loss.id, made) and not planned & set(walk(read)):
                _reduce(context, read)


def _reads(context: Context, call: ast.Call, name: str, made: frozenset[ast.AST]) -> bool:
    """`loss.item()` of the same loss."""
    value = call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "item" else None
    if not isinstance(value, ast.Name) or value.id != name or not made:
        return False
    return context.facts.interp.reaching.get(value) == made and context.reachable(call)


def _reduce(context: Context, read: ast.Call) -> None:
    if not Flow(context.facts, read).decisions:
        return
    assert isinstance(read.func, ast.Attribute)
    accelerator = context.accelerator(read)
    context.replace(
        read.func.value,
        RULE,
        "it decides: the mean over the processes",
        f'{accelerator}.reduce({{x}}, reduction="mean")',
        x=read.func.value,
    )
    context.collective.add(read)
