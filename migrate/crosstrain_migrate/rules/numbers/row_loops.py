"""CT602: loops over the rows of a batch that print, draw or keep something of each.

What:   The rows that such a loop goes over, and those it reads beside them, are gathered in one statement before it.
Why:    Of its share alone, a process would print and keep only its own rows.
Before: `for j in range(images.size(0)): show(images[j], guesses[j])`
After:  `images, guesses = accelerator.gather_for_metrics((images, guesses))` before it
Refuses: a loop that trains, or runs a model, and one that reads something of the share that has no rows.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.roles.facts import Facts
from crosstrain_migrate.roles.values import Shard, Value

from .shares import Sink, local_shards


def rows_read(facts: Facts, sink: Sink, loaders: set[Value]) -> list[ast.expr] | None:
    """The variables with rows that a loop over rows reads from before it; None where they cannot all be gathered."""
    loop = sink.at
    if not isinstance(loop, ast.For) or _runs_a_model(facts, loop) or _reads_elsewhere(facts, loop, loaders):
        return None
    found: list[ast.expr] = []
    for name in ast.walk(loop):
        if not isinstance(name, ast.Name) or not isinstance(name.ctx, ast.Load):
            continue
        kinds = {s.kind for s in local_shards(facts, name, loaders)}
        if not kinds or _is_made_inside(facts, name, loop):
            continue
        if kinds != {"rows"}:
            return None
        found.append(name)
    return found or None


def _is_made_inside(facts: Facts, name: ast.Name, loop: ast.For) -> bool:
    definitions = facts.interp.reaching.get(name, frozenset())
    return bool(definitions) and all(facts.table.is_inside(d, loop) for d in definitions)


def _runs_a_model(facts: Facts, loop: ast.For) -> bool:
    """Whether the rows are trained on, or given to a model, which works on a process's own share."""
    for node in ast.walk(loop):
        if not isinstance(node, ast.Call):
            continue
        if node in facts.loss_slice or node in facts.loss_origins:
            return True
        if any(facts.interp.is_module(v) for v in facts.of(node.func)):
            return True
        if any(target in facts.interp.touching for target in facts.targets(node)):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in {"backward", "step"}:
            return True
    return any(facts.batch_loop_around(n) is not facts.batch_loop_around(loop) for n in loop.body)


def _reads_elsewhere(facts: Facts, loop: ast.For, loaders: set[Value]) -> bool:
    """Whether a share is read through an attribute, an item or a function: only variables are gathered."""
    for node in ast.walk(loop):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load):
            owned = any(isinstance(v, Shard) for v in facts.of(node.value))
            if not owned and local_shards(facts, node, loaders) and not _names_rows(facts, node, loaders):
                return True
    return False


def _names_rows(facts: Facts, node: ast.Attribute | ast.Subscript, loaders: set[Value]) -> bool:
    """Whether the share comes from a variable inside the expression, as in `names[labels[j]]`."""
    inside = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return any(local_shards(facts, n, loaders) for n in inside)
