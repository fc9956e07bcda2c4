"""Barriers under a test of the rank, which let one process run a block before the others.

They stay, unless the Accelerator makes a collective of something in the block: that would then be called between the two
halves of one barrier.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.values import made_at
from crosstrain_migrate.rules.distribution.guards import guard_of, one_sided_barrier
from crosstrain_migrate.rules.distribution.launcher_settings import DIST
from crosstrain_migrate.rules.distribution.plain import Stage
from crosstrain_migrate.rules.preparing.prepared_objects import suite_of
from crosstrain_migrate.syntax.walks import walk

BARRIERS = (f"{DIST}barrier", f"{DIST}monitored_barrier")


def check(stage: Stage) -> None:
    """Raises Refusal at a barrier that could meet one of the Accelerator's collectives."""
    calls = stage.facts.calls_to(*BARRIERS)
    guarded = {call: guard for call in calls if (guard := guard_of(stage, call)) is not None}
    ours = _own_collectives(stage)
    for call, guard in guarded.items():
        suite = suite_of(stage.facts, guard)
        halves = [s for s in suite if s in guarded.values()]
        between = suite[suite.index(halves[0]) : suite.index(halves[-1]) + 1]
        if len(halves) < 2 or any(_reaches(stage, s, ours, frozenset()) for s in between):
            raise one_sided_barrier(call)


def _own_collectives(stage: Stage) -> set[ast.AST]:
    """Where the Accelerator's collectives come to stand: backward passes, and where the optimizers for `prepare` are made."""
    made = [made_at(optimizer) for optimizer in stage.facts.optimizers]
    return {call for call, _ in stage.facts.backward_calls} | set(made)


def _reaches(stage: Stage, node: ast.AST, ours: set[ast.AST], seen: frozenset[ast.AST]) -> bool:
    """Whether one of them runs within `node`, or in a function that is called there."""
    for inner in walk(node):
        if inner in ours:
            return True
        for function in stage.facts.targets(inner) if isinstance(inner, ast.Call) else ():
            if function not in seen and _reaches(stage, function, ours, seen | {function}):
                return True
    return False
