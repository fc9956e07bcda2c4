"""Whether every process comes to a place in a loop when one does: a collective anywhere else would wait for ever.

Batches, losses, clocks and random numbers differ by process; counters and options do not.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

from .script import Loop, Script

_PLAIN = {"len", "int", "min", "max"}  # calls that tell the same on every process


def what_may_differ(script: Script, loop: Loop) -> set[str]:
    """The variables and attributes that a loop binds and that may differ by process: all but its counters."""
    stored = {
        written(n)
        for n in walk(loop)
        if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store)
    }
    return stored - counters_of(loop) - _counted(script, loop)


def comes_alike(script: Script, node: ast.AST, loop: Loop, own: set[str]) -> bool:
    """Whether the conditions around a node in a loop say the same on every process."""
    below = node
    for one in script.around(node):
        if one is loop:
            return True
        if isinstance(one, ast.Try | ast.While | ast.For | ast.IfExp):
            return False
        if isinstance(one, ast.If) and (below in one.orelse or _may_differ(one.test, own)):
            return False
        below = one
    return False


def _may_differ(test: ast.expr, own: set[str]) -> bool:
    """Whether a test asks for the batch, the rank, or what only a call tells: a clock, a random number."""
    nodes = walk(test)
    if any(isinstance(n, ast.Call) and written(n.func) not in _PLAIN for n in nodes) or _asks_rank(test):
        return True
    return any(isinstance(n, ast.Name | ast.Attribute) and written(n) in own for n in nodes)


def _asks_rank(test: ast.expr) -> bool:
    return any(word in ast.unparse(test) for word in ("rank", "main", "master"))


def counters_of(loop: Loop) -> set[str]:
    """`i` of `for i, batch in enumerate(loader)`."""
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Tuple):
        return set()
    first = loop.target.elts[0]
    enumerates = any(isinstance(n, ast.Call) and written(n.func) == "enumerate" for n in walk(loop.iter))
    return {first.id} if enumerates and isinstance(first, ast.Name) else set()


def _counted(script: Script, loop: Loop) -> set[str]:
    """`step` of `step += 1`: variables that a loop changes by constants alone, once in each batch."""
    changes: dict[str, bool] = {}
    for node in walk(loop):
        if isinstance(node, ast.AugAssign):
            targets: list[ast.expr] = [node.target]
        elif isinstance(node, ast.Assign):
            targets = list(node.targets)
        else:
            continue
        constant = isinstance(node.value, ast.Constant) and script.parent(node) is loop
        for target in targets:
            text = written(target)
            changes[text] = changes.get(text, True) and constant
    return {name for name, constant in changes.items() if constant}
