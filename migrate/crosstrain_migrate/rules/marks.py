"""CT309: what the plain script left open becomes the accelerator's.

What:   Barriers, autocast regions, tests for the main process and numbers of processes, in functions that are given
        the accelerator like any other that needs it.
Why:    Where the accelerator is and how it gets there is known only when everything else is.
Before: `dist.barrier()`
After:  `accelerator.wait_for_everyone()`
"""

from __future__ import annotations

import ast

from crosstrain_migrate import edits as e

from .base import Context, refuse
from .wish import MARKED

RULE = "CT309"
COLLECTIVE = frozenset({"wait_for_everyone"})


def plan(context: Context) -> None:
    if context.wish.split_batches:
        context.options["split_batches"] = "True"
    for node in context.facts.nodes:
        found = MARKED.match(node.id) if isinstance(node, ast.Name) else None
        if found is None:
            continue
        assert isinstance(node, ast.Name)
        statement = context.facts.table.statement_of(node)
        if not context.reachable(node):
            if found[1] in COLLECTIVE:
                context.edits.append(e.RemoveStatement(statement, RULE))
                continue
            raise refuse(
                RULE,
                node,
                f"`accelerator.{found[1]}` is needed here, where the accelerator cannot be brought",
                "move this behind the place where the model is made, into a function that its callers call directly",
            )
        context.edits.append(e.Replace(node, RULE, template=f"{context.accelerator(node)}.{found[1]}"))
        if found[1] in COLLECTIVE:
            context.collective.add(statement)
