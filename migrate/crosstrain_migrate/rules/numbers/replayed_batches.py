"""Batches that are drawn before they are trained on, or again afterwards: `cycle(loader)` of itertools, `list(loader)`.

The runtime knows the rows of the batch that a loader has just given, but not those of a stored batch: shares of different
sizes would have the same weight, and the rows that fill an epoch's last batch would count. Where every batch is full,
shares are equal and the runtime needs to know nothing.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import Value
from crosstrain_migrate.rules.base import Context, refuse
from crosstrain_migrate.rules.preparing.aliases import streamed

from .bindings import option

RULE = "CT605"
KEEP = ("itertools.cycle", "builtins.list", "builtins.tuple", "builtins.sorted")


def check(context: Context) -> None:
    """Raises Refusal where training goes over kept batches that may be uneven."""
    for loader in context.subject.train_loaders:
        call = kept_by(context, loader)
        if call is not None and not _only_counts(context, call):
            raise refuse(
                RULE,
                call,
                f"`{ast.unparse(call.func)}` keeps the loader's batches and gives them later: a last batch that is smaller "
                "would then be weighed wrongly on several processes",
                "give the loader drop_last=True, or let a generator go over it anew: `while True: yield from loader`",
            )


def kept_by(context: Context, loader: Value) -> ast.Call | None:
    """The call that keeps batches of a loader to give them later, where they may be uneven."""
    facts = context.facts
    for call in facts.calls_to(*KEEP) if not _is_even(loader) else ():
        if any(loader in streamed(facts, v) for argument in call.args for v in facts.of(argument)):
            return call
    return None


def _only_counts(context: Context, call: ast.Call) -> bool:
    """`len(list(loader))`: as many as the loop over the loader has turns, on any number of processes."""
    around = context.facts.table.parents.get(call)
    return isinstance(around, ast.Call) and context.facts.paths(around.func) == {"builtins.len"}


def _is_even(loader: Value) -> bool:
    asked = option(loader, "drop_last")
    return isinstance(asked, ast.Constant) and asked.value is True
