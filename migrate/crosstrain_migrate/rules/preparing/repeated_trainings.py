"""Several trainings one after the other in one scope: what is prepared for each of them.

`finetune = train(model, SGD(model.parameters()))`, and further down the same with another model or optimizer: while the
first training runs, what the second needs does not exist yet, so each gets a `prepare` of its own.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.arguments import arguments_of
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Value, site_of
from crosstrain_migrate.rules.base import Context

from .holders import Held
from .prepared_objects import trained_by


def rounds_of(context: Context, held: Held) -> list[Held]:
    """`held`, split by the training that each object serves first; whole where there is only one optimizer."""
    facts, subject = context.facts, context.subject
    optimizers = sorted((o for o in subject.optimizers if o in held), key=lambda o: held[o].last.lineno)
    if len(optimizers) < 2 or not all(held[v].stores for v in held):
        return [held]
    found: dict[Value, Held] = {}
    left = dict(held)
    for optimizer in optimizers:
        mine = {optimizer, *trained_by(facts, optimizer)}
        mine |= {s for s in subject.schedulers if _is_made_from(facts, s, optimizer)}
        found[optimizer] = {v: left.pop(v) for v in held if v in mine & set(left)}
    for value, holding in left.items():
        later = (o for o in optimizers if holding.last.lineno < held[o].last.lineno)
        found[next(later, optimizers[0])][value] = holding
    return list(found.values())


def _is_made_from(facts: Facts, scheduler: Value, optimizer: Value) -> bool:
    site = site_of(scheduler)
    return isinstance(site, ast.Call) and any(optimizer in facts.of(a) for a in arguments_of(site))
