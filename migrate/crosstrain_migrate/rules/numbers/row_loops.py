"""For CT602: loops over the rows of a batch that print, draw or keep something of each.

What:   The rows that such a loop goes over, and those it reads beside them, are gathered in one statement before it.
Why:    Of its share alone, a process would print and keep only its own rows.
Before: `for j in range(images.size(0)): show(images[j], guesses[j])`
After:  `images, guesses = accelerator.gather_for_metrics((images, guesses))` before it
Refuses: a loop that trains, or runs a model, and one that reads something of the share that has no rows.
Leaves: a loop of a loss that decides row by row (`if mask[b].any(): loss = loss + ...`) and tells nobody.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.containers import Comprehension
from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import FromBatch, Value
from crosstrain_migrate.syntax.walks import walk

from .batch_values import local_batch_values
from .module_state import COLLECTS
from .opaque_calls import inside_opaque
from .sinks import Sink, looped_over

RowLoop = ast.For | ast.AsyncFor | Comprehension


def in_row_loops(facts: Facts, sinks: list[Sink], loaders: set[Value]) -> list[Sink]:
    """`sinks`, with a loop over rows in the place of what it does row by row.

    A gather inside such a loop would meet positions that are counted in this process's share.
    """
    loops = {sink: _row_loop_around(facts, sink, loaders) for sink in sinks if sink.how != "rows"}
    found: list[Sink] = []
    for sink in sinks:
        loop = loops.get(sink)
        if loop is None:
            found.append(sink)
            continue
        inner = [s for s, around in loops.items() if around is loop]
        if inner[0] is sink and not _decides_for_itself(facts, loop, inner, loaders):
            found.append(Sink(_over(facts, loop, loaders)[0], "rows", loop))
    return found


def _row_loop_around(facts: Facts, sink: Sink, loaders: set[Value]) -> RowLoop | None:
    """The outermost loop over rows in which `sink` stands: beneath what it goes over."""
    if inside_opaque(facts, sink.node, loaders):
        return None
    found: RowLoop | None = None
    batches = facts.batch_loop_around(sink.node)
    for around in facts.table.ancestors(sink.node):
        if around is batches or isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            break
        if not isinstance(around, RowLoop) or facts.table.is_inside(sink.node, _iterated(around)[0]):
            continue
        if _over(facts, around, loaders):
            found = around
    return found


def _iterated(loop: RowLoop) -> list[ast.expr]:
    return [loop.iter] if isinstance(loop, ast.For | ast.AsyncFor) else [g.iter for g in loop.generators]


def _over(facts: Facts, loop: RowLoop, loaders: set[Value]) -> list[ast.expr]:
    """The parts of a batch that a loop goes over, those beside a layer's or a batch's."""
    over = [part for i in _iterated(loop) for part in looped_over(facts, i, loaders)]
    kinds = {s.kind for part in over for s in local_batch_values(facts, part, loaders)}
    return over if kinds & {"rows", "mixed", "order", "other", "count"} else []


def _decides_for_itself(facts: Facts, loop: RowLoop, sinks: list[Sink], loaders: set[Value]) -> bool:
    """Whether a loop computes a loss, and all that its tests decide about a row goes into that loss."""
    trained = any(n in facts.loss_slice for n in walk(loop))
    if not trained or any(sink.how != "test" for sink in sinks):
        return False
    if any(isinstance(n, ast.Break | ast.Return | ast.Yield) for n in walk(loop)):
        return False
    if any(facts.table.is_inside(call, loop) for call, _ in facts.backward_calls):
        return False
    return all(
        facts.table.is_inside(use, loop) or use in facts.loss_slice or local_batch_values(facts, use, loaders)
        for definition in _changed(facts, loop)
        for use in facts.interp.uses[definition]
    )


def _changed(facts: Facts, loop: RowLoop) -> set[ast.AST]:
    """The definitions that a loop makes, and those of the containers that it fills."""
    found: set[ast.AST] = set()
    for node in walk(loop):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node)
        held = node.value if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) else None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in COLLECTS:
            held = node.func.value
        if isinstance(held, ast.Name):
            found |= facts.interp.reaching.get(held, frozenset())
    return found


def rows_read(facts: Facts, sink: Sink, loaders: set[Value]) -> list[ast.expr] | None:
    """The variables with rows that a loop over rows reads from before it; None where they cannot all be gathered."""
    loop = sink.at
    if not isinstance(loop, ast.For | Comprehension) or _runs_a_model(facts, loop):
        return None
    if _reads_elsewhere(facts, loop, loaders):
        return None
    found: list[ast.expr] = []
    for name in walk(loop):
        if not isinstance(name, ast.Name) or not isinstance(name.ctx, ast.Load):
            continue
        kinds = {s.kind for s in local_batch_values(facts, name, loaders)}
        if not kinds or _is_made_inside(facts, name, loop):
            continue
        if kinds != {"rows"}:
            return None
        found.append(name)
    return found or None


def _is_made_inside(facts: Facts, name: ast.Name, loop: ast.For | Comprehension) -> bool:
    definitions = facts.interp.reaching.get(name, frozenset())
    return bool(definitions) and all(facts.table.is_inside(d, loop) for d in definitions)


def _runs_a_model(facts: Facts, loop: ast.For | Comprehension) -> bool:
    """Whether the rows are trained on, or given to a model, which works on a process's own share."""
    for node in walk(loop):
        if node in facts.loss_slice or node in facts.loss_origins:
            return True
        if not isinstance(node, ast.Call):
            continue
        if any(facts.interp.is_module(v) for v in facts.of(node.func)):
            return True
        if any(target in facts.interp.touching for target in facts.targets(node)):
            return True
        if isinstance(node.func, ast.Attribute) and node.func.attr in {"backward", "step"}:
            return True
    statements = loop.body if isinstance(loop, ast.For) else []
    return any(facts.batch_loop_around(n) is not facts.batch_loop_around(loop) for n in statements)


def _reads_elsewhere(facts: Facts, loop: ast.For | Comprehension, loaders: set[Value]) -> bool:
    """Whether a share is read through an attribute, an item or a function: only variables are gathered."""
    for node in walk(loop):
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Load):
            owned = any(isinstance(v, FromBatch) for v in facts.of(node.value))
            if (
                not owned
                and local_batch_values(facts, node, loaders)
                and not _names_rows(facts, node, loaders)
            ):
                return True
    return False


def _names_rows(facts: Facts, node: ast.Attribute | ast.Subscript, loaders: set[Value]) -> bool:
    """Whether the share comes from a variable inside the expression, as in `names[labels[j]]`."""
    inside = (n for n in walk(node) if isinstance(n, ast.Name))
    return any(local_batch_values(facts, n, loaders) for n in inside)
