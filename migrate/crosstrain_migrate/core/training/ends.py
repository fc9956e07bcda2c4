"""Training that ends after a number of steps of its own counter, which every process counts alike, however many there are."""

from __future__ import annotations

import ast
from collections.abc import Container

from crosstrain_migrate.core.reading.forms import Frame, Loop, names_in
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import exits, last_name, place_of, written
from crosstrain_migrate.syntax.walks import stores_in, walk, walk_all


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


def turns_by_steps(script: Script, loop: Loop, loaders: Container[str]) -> bool:
    """Whether loops around one over data turn as often as it takes for a number of steps: `range(steps // len(loader))`."""
    frame = script.frame(loop)
    return any(
        length in loaders
        for one in script.loops_around(loop)
        for length in lengths_in_turns(script, frame, one)
    )


def lengths_in_turns(script: Script, frame: Frame, loop: Loop) -> set[str]:
    """Whose lengths divide the number of a loop's turns, also through variables; and these variables."""
    head = loop.iter if isinstance(loop, ast.For) else None
    if not isinstance(head, ast.Call):
        return set()
    turns = [head, *(value for name in names_in(head) for value in script.values(frame, name))]
    divisions = [n for n in walk_all(turns) if isinstance(n, ast.BinOp)]
    by = [n.right for n in divisions if isinstance(n.op, ast.Div | ast.FloorDiv)]
    names = [one.id for one in by if isinstance(one, ast.Name)]
    by += [value for name in names for value in script.values(frame, name)]
    asked = [one.args for one in by if isinstance(one, ast.Call) and last_name(one.func) == "len"]
    return {written(one) for args in asked for one in args} | set(names if asked else ())


def epochs_by(script: Script, frame: Frame, bound: ast.stmt) -> list[ast.stmt]:
    """The statements that compute a number of epochs from a length that is bound, of itself: `epochs = steps // n`."""
    loops = [one for one in script.within(frame) if isinstance(one, ast.For)]
    heads = {name for one in loops if lengths_in_turns(script, frame, one) for name in names_in(one.iter)}
    names = {written(one) for one in getattr(bound, "targets", ())}
    values = [value for name in heads for value in script.values(frame, name)]
    reading = [
        v
        for v in values
        if names_in(v) & names or (script.statement(v) is bound and "len(" in ast.unparse(v))
    ]
    return sorted({script.statement(one) for one in reading}, key=place_of)


def limits_of_steps(script: Script, loop: Loop) -> set[str]:
    """What a counter of batches is compared with where loops over epochs may also end: `args.max_steps` of
    `if 0 < args.max_steps < step: break`."""
    outer = [loop, *script.loops_around(loop)][-1]
    counters = _counters(outer, loop)
    tests = [n.test for n in walk(outer) if isinstance(n, ast.If) and any(_is_exit(one) for one in n.body)]
    found: set[str] = set()
    for compared in (n for n in walk_all(tests) if isinstance(n, ast.Compare)):
        sides = {
            written(n)
            for n in (compared.left, *compared.comparators)
            if isinstance(n, ast.Name | ast.Attribute)
        }
        found |= sides - counters if sides & counters else set()
    return found


def _is_exit(node: ast.AST) -> bool:
    return exits(node) or isinstance(node, ast.Break | ast.Return | ast.Raise)


def _counters(outer: Loop, loop: Loop) -> set[str]:
    """The variables to which each batch adds one, and that nothing else changes while the training lasts."""
    adds = [n for n in walk(loop) if isinstance(n, ast.AugAssign) and isinstance(n.op, ast.Add)]
    ones = [written(n.target) for n in adds if isinstance(n.value, ast.Constant) and n.value.value == 1]
    stores = list(map(written, stores_in(outer)))
    return {text for text in ones if stores.count(text) == 1}


def _compares(test: ast.expr, counters: set[str]) -> bool:
    """Whether a test asks nothing but how far a counter is: `max_steps > 0 and steps >= max_steps` may be switched off."""
    sides = [test.left, *test.comparators] if isinstance(test, ast.Compare) else []
    return any(written(one) in counters for one in sides if isinstance(one, ast.Name | ast.Attribute))


def _leaves(script: Script, test: ast.If, outer: ast.While, flags: set[str]) -> bool:
    """Whether what a test guards ends a loop: by leaving it, or by the flag that the loop asks for."""
    for node in walk_all(test.body):
        if _is_exit(node) and (
            not isinstance(node, ast.Break) or next(iter(script.loops_around(node))) is outer
        ):
            return True
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in flags:
            return True
    return False
