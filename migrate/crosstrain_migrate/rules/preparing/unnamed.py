"""Loaders that no variable holds where they are made: `cycle(DataLoader(...))`, `for x, y in DataLoader(...)`.

The call itself is prepared: whatever takes the loader from there gets the prepared one.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.roles.values import Value, made_at
from crosstrain_migrate.rules.base import Context, refuse

from .renewed import RENEWED, may_differ
from .schedulers import check_uncounted

RULE = "CT201"


def prepare_in_place(context: Context, loader: Value) -> None:
    """`DataLoader(...)` becomes `accelerator.prepare(DataLoader(...))`. Raises Refusal where it cannot."""
    site = made_at(loader)
    if not context.reachable(site) or _serves_others(context, loader, site):
        raise refuse(
            RULE,
            site,
            "the loader that is made here is held by no variable where the model is prepared, and this call cannot be "
            "prepared where it stands: the accelerator does not come there, or the call makes other loaders too",
            "make the loader beside the model, and give it a name: `loader = DataLoader(...)`",
        )
    check_uncounted(context, loader, site)
    if may_differ(context, site):
        raise refuse(RULE, site, *RENEWED)
    reason = "no variable holds the loader, so it is prepared where it is made"
    call = "prepare({x})"
    if loader in context.subject.on_the_cpu:
        call = "prepare_data_loader({x}, device_placement=False)"
    context.replace(site, RULE, reason, f"{context.accelerator(site)}.{call}", x=site)


def _serves_others(context: Context, loader: Value, site: ast.expr) -> bool:
    """Whether the call also makes loaders of other uses: those of another key, or of another call of its function."""
    facts = context.facts
    if any(v != loader and made_at(v) is site for v in facts.loaders):
        return True
    function = facts.enclosing_function(site)
    seen = {context.home.scope.node}
    while function is not None and function not in seen:
        seen.add(function)
        sites = facts.callers.get(function, [])
        if len(sites) != 1:
            return True
        function = facts.enclosing_function(sites[0])
    return False
