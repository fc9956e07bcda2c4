"""Calls that only CUDA answers, outside of what is computed: made only where CUDA is."""

from __future__ import annotations

import ast

from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax import edits as e

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


def plan(context: Context) -> None:
    visible_devices.plan(context)
    for call in context.facts.calls_to(*ONLY_CUDA):
        statement = context.facts.table.statement_of(call)
        whole = isinstance(statement, ast.Expr) and statement.value is call
        if not whole or _is_asked(context, call) or not context.allows(RULE, call):
            continue
        if "torch" in context.facts.table.of_node[call].module.names:
            reason = "only where CUDA is: the script runs on other devices, too"
            context.edits.append(
                e.Guard(statement, RULE, reason, last=statement, test=TEST, transaction="cuda")
            )


def _is_asked(context: Context, call: ast.Call) -> bool:
    """Whether a test around the call may already ask for a device."""
    return any(
        isinstance(around, ast.If) for around in context.facts.table.ancestors(call) if not _is_main(around)
    )


def _is_main(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)
