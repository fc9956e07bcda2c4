"""Calls that fail without CUDA and compute nothing are made only where CUDA is available."""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.program import is_main_test

from . import visible_devices

RULE = "CT105"
# Each fails where torch has no CUDA; queries such as max_memory_allocated answer 0 there.
ONLY_CUDA = frozenset(
    f"torch.cuda.{name}"
    for name in (
        "synchronize",
        "reset_peak_memory_stats",
        "reset_max_memory_allocated",
        "set_per_process_memory_fraction",
    )
)
TEST = "torch.cuda.is_available()"
REASON = "only where CUDA is: the script runs on other devices, too"


def plan(context: Context) -> None:
    visible_devices.plan(context)
    for call in context.facts.calls_to(*ONLY_CUDA):
        statement = context.facts.table.statement_of(call)
        whole = isinstance(statement, ast.Expr) and statement.value is call
        if not whole or _is_asked(context, call) or not context.allows(RULE, call):
            continue
        if "torch" in context.facts.table.of_node[call].module.names:
            guard = e.Guard(statement, RULE, REASON, last=statement, test=TEST, transaction="cuda")
            context.edits.append(guard)


def _is_asked(context: Context, call: ast.Call) -> bool:
    """Whether a test around the call may check for a device already."""
    tests = (around for around in context.facts.table.ancestors(call) if isinstance(around, ast.If))
    return not all(map(is_main_test, tests))
