"""`--runtime accelerate`: what a conversion for Hugging Face's library cannot say.

Accelerate averages the gradients of prepared modules and deals DataLoaders; it has no `merge`, and no group for a script
that distributes itself.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.results import Finding, Severity

from .distributed.mapping import distributes_itself
from .plan import Plan, finding_at
from .reading.roles import Roles
from .training.backward import SUMMED, sums_over_rows

OWN = "crosstrain"
REMEDY = "leave --runtime accelerate out: Crosstrain's own runtime does it"


def not_in_accelerate(plan: Plan, roles: Roles) -> list[Finding]:
    """Why a script must not be converted for Accelerate; empty where nothing speaks against it."""
    first = roles.backwards[0].call if roles.backwards else plan.script.entry  # a library goes backward
    if distributes_itself(plan.script):
        return [
            _refused("CT303", first, "the script distributes itself, and Accelerate cannot take its place")
        ]
    if sums_over_rows(plan.script, roles):
        return [_refused("CT202", first, f"the loss is a sum over rows, and Accelerate has no `{SUMMED}`")]
    if not plan.models:
        reason = "Accelerate averages the gradients of prepared modules only, and none is known here"
        return [_refused("CT201", first, reason)]
    return []


def _refused(rule: str, node: ast.AST, reason: str) -> Finding:
    return finding_at(node, rule, reason, REMEDY, Severity.REFUSED)
