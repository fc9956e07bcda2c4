"""Training that ends after a number of steps of its own counter, which every process counts alike, however many there are."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.script import Loop, Script, names_in
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

_EXITS = frozenset({"sys.exit", "exit", "quit"})


def ends_by_steps(script: Script, loop: Loop) -> bool:
    """Whether the outermost loop around one over data is a `while` that a counter of batches ends."""
    outer = [loop, *script.loops_around(loop)][-1]
    if outer is loop or not isinstance(outer, ast.While):
        return False
    counters = _counters(outer, loop)
    if _compares(outer.test, counters):
        return True
    flags = names_in(outer.test)
    tests = [n for n in walk(outer) if isinstance(n, ast.If) and _compares(n.test, counters)]
    return any(_leaves(script, one, outer, flags) for one in tests)


def limits_of_steps(script: Script, loop: Loop) -> set[str]:
    """What a counter of batches is compared with where loops over epochs may also end: `args.max_steps` of
    `if 0 < args.max_steps < step: break`."""
    outer = [loop, *script.loops_around(loop)][-1]
    counters = _counters(outer, loop)
    tests = [
        n.test for n in walk(outer) if isinstance(n, ast.If) and any(_is_exit(script, one) for one in n.body)
    ]
    found: set[str] = set()
    for compared in (n for test in tests for n in walk(test) if isinstance(n, ast.Compare)):
        sides = {
            written(n)
            for n in (compared.left, *compared.comparators)
            if isinstance(n, ast.Name | ast.Attribute)
        }
        found |= sides - counters if sides & counters else set()
    return found


def _is_exit(script: Script, node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return _is_exit(script, node.value)
    ends = isinstance(node, ast.Call) and script.dotted(node.func) in _EXITS
    return ends or isinstance(node, ast.Break | ast.Return | ast.Raise)


def _counters(outer: Loop, loop: Loop) -> set[str]:
    """The variables to which each batch adds one, and that nothing else changes while the training lasts."""
    adds = [n for n in walk(loop) if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add)]
    ones = [written(n.target) for n in adds if isinstance(n.value, ast.Constant) and n.value.value == 1]
    stores = [
        written(n)
        for n in walk(outer)
        if isinstance(n, ast.Name | ast.Attribute) and isinstance(n.ctx, ast.Store)
    ]
    return {text for text in ones if stores.count(text) == 1}


def _compares(test: ast.expr, counters: set[str]) -> bool:
    """Whether a test asks nothing but how far a counter is: `max_steps > 0 and steps >= max_steps` may be switched off."""
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
    return any(written(one) in counters for one in sides if isinstance(one, ast.Name | ast.Attribute))


def _leaves(script: Script, test: ast.If, outer: ast.While, flags: set[str]) -> bool:
    """Whether what a test guards ends a loop: by leaving it, or by the flag that the loop asks for."""
    for node in (n for statement in test.body for n in walk(statement)):
        if _is_exit(script, node) and (
            not isinstance(node, ast.Break) or next(iter(script.loops_around(node))) is outer
        ):
            return True
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in flags:
            return True
    return False
