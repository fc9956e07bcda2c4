"""CT602 for functions of other packages that are given a prepared loader: they see this process's share."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.values import Iterator
from crosstrain_migrate.rules.base import Context

RULE = "CT602"
KNOWN = ("builtins.", "itertools.", "torch.", "tqdm.", "rich.progress.", "more_itertools.", "copy.")


def plan(context: Context) -> None:
    """Notes each call whose result somebody uses; called when it is known which loaders are prepared."""
    for call in context.facts.calls:
        used = not isinstance(context.facts.table.parents.get(call), ast.Expr)
        if used and not context.facts.in_module(call) and _is_unseen(context, call):
            context.note(
                RULE,
                call,
                f"`{ast.unparse(call.func)}` is a function of another package and goes over this process's share of the "
                "loader: what it returns is this process's own",
                "give it a loader that is not prepared, or reduce what it returns with `accelerator.reduce`",
            )


def _is_unseen(context: Context, call: ast.Call) -> bool:
    facts, loaders = context.facts, context.subject.loaders
    if facts.targets(call) or not any(facts.of(argument) & loaders for argument in arguments_of(call)):
        return False
    paths = facts.paths(call.func)
    if not paths or any(path.startswith(KNOWN) or path in api.ITERATORS for path in paths):
        return False
    return not any(v in loaders or isinstance(v, Iterator) for v in facts.of(call))
