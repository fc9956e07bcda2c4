"""For CT602: every process comes to every gather, with rows of a loader that is shared.

What:   A function that gathers is called for loaders that are prepared and for one that is not, or for a list; or a gather
        stands in a branch that each process draws for itself.
Why:    Rows that every process has anyway would be counted once per process; a gather that only some processes reach
        never ends. The mean over processes of a number that all of them have is that number, so it stays.
Leaves: the script as it was.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import Sequence, site_of
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.walks import walk

from . import random_draws
from .backward_passes import check_inputs
from .batch_values import batch_values

RULE = "CT602"


def check(context: Context) -> None:
    """Raises Refusal; asked when it is known what is prepared and what communicates."""
    check_inputs(context)
    communicating = (context.collective | context.gathered) - context.averaged
    for node in sorted(communicating, key=line_of):
        why = unshared_rows_at(context, node)
        if why is not None:
            raise refuse(
                RULE,
                node,
                f"{why}: gathered, those rows would count once for each process",
                "use separate variables, or a separate function, for each loader",
            )
    for call in random_draws.decisions(context):
        around = context.facts.table.ancestors(call)
        test = next(a for a in around if isinstance(a, ast.If | ast.While | ast.IfExp))
        if set(walk(test)) & context.collective:
            raise refuse(
                random_draws.RULE,
                call,
                "each process draws this decision for itself, and what it decides about is computed by all together: one "
                "that decides otherwise would leave the others waiting",
                "draw it once, before the loop, or compute what is printed in every case",
            )


def unshared_rows_at(context: Context, node: ast.AST) -> str | None:
    """Why rows must not be gathered at a node that rows of shared loaders come to: it also gets rows that every process
    has; None where it gets no such rows."""
    facts = context.facts
    loaders = {v.loader for part in walk(node) for v in batch_values(facts, part) if not v.host}
    loaders = {loader for loader in loaders if facts.comes_to(node, {loader})}
    if not loaders & context.subject.loaders:
        return None
    whole = [loader for loader in loaders - context.subject.loaders if facts.interp.is_loader(loader)]
    if whole:
        line = min(line_of(site_of(loader)) for loader in whole)  # the same one in every run
        return f"this also gets batches of a loader that every process goes over whole (line {line})"
    loop = facts.batch_loop_around(node)
    # Written out as a list; what `zip` makes of loaders is none.
    if isinstance(loop, ast.For) and any(
        isinstance(v, Sequence) and isinstance(v.site, ast.List | ast.Tuple | ast.ListComp)
        for v in facts.of(loop.iter)
    ):
        return f"this loop also goes over a list that every process has (`{ast.unparse(loop.iter)}`)"
    return None
