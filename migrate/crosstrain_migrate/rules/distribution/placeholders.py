"""CT309: barriers, ranks and regions become the accelerator's

What:   Barriers, autocast regions, tests for the main process and numbers of processes, in functions that are given
        the accelerator like any other that needs it.
Why:    Where the accelerator is and how it gets there is known only when everything else is.

Example (imports):
    import torch.distributed as dist
And (after_epoch):
    dist.barrier()
Becomes (imports): nothing
And (after_epoch):
    accelerator.wait_for_everyone()
"""

from __future__ import annotations

import ast
from itertools import chain, pairwise

from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax import edits as e

from .requested_options import MARKED

RULE = "CT309"
COLLECTIVE = frozenset({"wait_for_everyone"})
MAIN = frozenset({"is_main_process", "is_local_main_process"})


def plan(context: Context) -> None:
    if context.requested.split_batches:
        context.options["split_batches"] = "True"
    for node in context.facts.each(ast.Name):
        found = MARKED.match(node.id)
        if found is None:
            continue
        statement = context.facts.table.statement_of(node)
        if context.requested.mapped and not context.at_hand(node):
            state = context.process(node, RULE)
            context.edits.append(e.Replace(node, RULE, template=f"{state}.{found[1]}"))
            continue
        if not context.reachable(node):
            if found[1] in COLLECTIVE:
                context.edits.append(e.RemoveStatement(statement, RULE))
                continue
            if found[1] in MAIN and not _is_guard(context, node):
                context.edits.append(e.Replace(node, RULE, template="True"))
                reason = "every process counts as the main process here, because the accelerator is not available to this code"
                context.note(RULE, node, reason, "move it below the place where the Accelerator is made")
                continue
            reason = f"this code needs `accelerator.{found[1]}`, and nothing can hand it the accelerator"
            remedy = (
                "move it below the place where the model is made, into a function that is called directly"
            )
            raise refuse(RULE, node, reason, remedy)
        context.edits.append(e.Replace(node, RULE, template=f"{context.accelerator(node)}.{found[1]}"))
        if found[1] in COLLECTIVE:
            context.collective.add(statement)


def _is_guard(context: Context, node: ast.AST) -> bool:
    """Whether a block depends on `node`, and not merely a value."""
    for child, around in pairwise(chain((node,), context.facts.table.ancestors(node))):
        if isinstance(around, ast.stmt):
            return isinstance(around, ast.If | ast.While) and child is around.test
    return False
