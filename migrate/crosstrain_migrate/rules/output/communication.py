"""For CT403: moves what all processes take part in above a block that writes a file, which the main process then runs alone.

Before: `with open(path, "a") as log:` around `log.write(f"{accelerator.reduce(loss).item()}")`
After:  `reduced = accelerator.reduce(loss)`, and the block around `log.write(f"{reduced.item()}")`
"""

from __future__ import annotations

import ast
from itertools import chain, count

from crosstrain_migrate.rules.base import Context
from crosstrain_migrate.syntax import edits as e
from crosstrain_migrate.syntax.nodes import line_of
from crosstrain_migrate.syntax.walks import walk

from .opened_files import writes_into


def lift(context: Context) -> None:
    """Moves communication out of every block that writes a file, where that is safe."""
    for block in sorted(context.facts.each(ast.With), key=line_of):
        if writes_into(context.facts, block):
            _lift_out_of(context, block)


def _lift_out_of(context: Context, block: ast.With) -> None:
    inside = set(walk(block))
    lifted = [
        edit
        for edit in context.edits
        if isinstance(edit, e.Replace) and edit.node in context.collective and edit.node in inside
    ]
    communicating = context.collective & inside
    if not lifted or communicating != {edit.node for edit in lifted}:
        return
    if context.facts.table.is_whole_else(block) or not all(_can_leave(context, x, inside) for x in lifted):
        return
    for edit in lifted:
        assert isinstance(edit.node, ast.expr)
        name = _fresh_name(context, block, "reduced" if edit.node in context.averaged else "gathered")
        code = edit.template.format(**{hole: context.source(node) for hole, node in edit.holes.items()})
        context.edits.remove(edit)
        context.edits.append(e.InsertBefore(block, edit.rule, edit.reason, code=f"{name} = {code}"))
        context.edits.append(e.Replace(edit.node, edit.rule, template=name))
    context.collective -= communicating
    context.below_collective.add(block)


def _can_leave(context: Context, edit: e.Replace, inside: set[ast.AST]) -> bool:
    """Whether an expression has the same value above the block, and nothing else changes it."""
    parts = set(walk(edit.node))
    if any(other is not edit and other.node in parts for other in context.edits):
        return False
    if any(context.facts.targets(n) for n in parts if isinstance(n, ast.Call)):
        return False
    reaching = context.facts.interp.reaching
    return not any(reaching.get(n, frozenset()) & inside for n in parts if isinstance(n, ast.Name))


def _fresh_name(context: Context, node: ast.AST, wanted: str) -> str:
    scope = context.facts.table.of_node[node]
    taken = scope.names | scope.module.names
    name = next(n for n in chain([wanted], (f"{wanted}_{i}" for i in count(2))) if n not in taken)
    scope.names.add(name)
    return name
