"""A `while` that fetches the batches of a step by itself, inside a loop over something else: checkpoints, folds, names."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.walks import walk, walk_all

from .forms import names_in, root_of
from .script import Script, is_statement_call


def is_fetched_apart(script: Script, step: ast.AST, loop: ast.For | ast.AsyncFor) -> bool:
    """Whether what a step is given is fetched by a `while` inside a loop, and nothing of it comes from the loop's items."""
    around = script.loops_around(step)
    inner = next((w for w in around if isinstance(w, ast.While) and script.table.is_inside(w, loop)), None)
    if inner is None:
        return False
    given = names_in(step)
    fetched = [
        n.value
        for n in walk(inner)
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) and given & _bound(n)
    ]
    items = _made_of(script, loop)
    return bool(fetched) and not any(items & names_in(one) for one in fetched)


def _made_of(script: Script, loop: ast.For | ast.AsyncFor) -> set[str]:
    """The variables that hold a loop's item, or what is made of it, and the objects that are told it."""
    found = names_in(loop.target)
    before = -1
    while before < len(found):
        before = len(found)
        for node in walk_all(loop.body):
            if isinstance(node, ast.Assign) and found & names_in(node.value):
                found |= _bound(node)
            elif isinstance(node, ast.Call) and is_statement_call(script, node) and found & names_in(node):
                found |= {root_of(node.func)} - {""}
    return found


def _bound(node: ast.Assign) -> set[str]:
    return {name for target in node.targets for name in names_in(target)}
