"""CT205 for a learning rate that the script computes from a step count: by default, several processes take fewer steps.

What:   `group["lr"] = base * min(1.0, step / warmup)` in the loop over batches, where `step` counts batches, and the
        length of the loader, which shrinks with the number of steps, plays no part.
Why:    With N processes a step takes N batches, so a warm-up of 500 steps goes over N times as many rows.
Leaves: rates computed from the epoch, or from the loader's length; the script as it was.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.facts.slices import slice_of
from crosstrain_migrate.facts.values import Length
from crosstrain_migrate.rules.base import Context

RULE = "CT205"


def plan(context: Context) -> None:
    loaders = set(context.subject.train_loaders)
    for assignment in context.facts.each(ast.Assign):
        if not any(map(_is_rate, assignment.targets)) or not context.facts.in_batch_loop(assignment, loaders):
            continue
        counted = next((v for v in _values(context, assignment.value) if _counts_steps(context, v)), None)
        if counted is not None:
            context.note(
                RULE,
                counted,
                "this learning rate depends on a step count, and by default several processes take fewer steps (the global batch is larger)",
                "launch with --split-batches to keep the number of steps",
            )
            return


def _is_rate(target: ast.expr) -> bool:
    key = target.slice if isinstance(target, ast.Subscript) else None
    return isinstance(key, ast.Constant) and key.value == "lr"


def _values(context: Context, node: ast.expr) -> Iterator[ast.expr]:
    """The values that a variable may have, one by one: a part of a schedule may follow the length, another not."""
    definitions = context.facts.bindings(node)
    statements = map(context.facts.table.statement_of, definitions)
    values = [s.value for s in statements if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)]
    yield from sorted(values, key=lambda v: v.lineno) if values else [node]


def _counts_steps(context: Context, value: ast.expr) -> bool:
    facts = context.facts
    parts = slice_of(facts, [value])
    if any(isinstance(v, Length) for part in parts for v in facts.of(part)):
        return False
    definitions = (d for p in parts if isinstance(p, ast.Name) for d in facts.bindings(p))
    return any(_is_counted(context, d) for d in definitions if not isinstance(d, ast.arg))


def _is_counted(context: Context, definition: ast.AST) -> bool:
    """`step += 1` in the loop over batches."""
    statement = context.facts.table.statement_of(definition)
    return (
        isinstance(statement, ast.AugAssign)
        and isinstance(statement.value, ast.Constant)
        and context.facts.in_batch_loop(statement, set(context.subject.train_loaders))
    )
