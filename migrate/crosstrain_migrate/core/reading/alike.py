"""Whether every process comes to a place in a loop when one does: a collective anywhere else would wait for ever.

Batches, losses, clocks and random numbers differ by process; counters and options do not.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Collection

from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import stores_in, walk

from .forms import Loop
from .script import Script

# Calls that tell the same on every process: functions, and methods of a text.
_PLAIN = {"len", "int", "min", "max", "str", "float", "bool", "hasattr", "isinstance"}
_OF_TEXTS = {"lower", "upper", "strip", "startswith", "endswith"}


def what_may_differ(script: Script, loop: Loop, turns: Collection[str] = ()) -> set[str]:
    """The variables and attributes that a loop binds and that may differ by process: all but its counters, `turns` among
    them, and what is computed from these in every batch."""
    own = set(map(written, stores_in(loop))) - counters_of(loop, script) - {*turns}
    bindings = _bindings(loop)
    while True:
        alike = {
            text
            for text in own & bindings.keys()
            if all(
                comes_alike(script, node, loop, own - {text}) and not may_differ(node.value, own - {text})
                for node in bindings[text]
            )
        }
        if not alike:
            return own
        own -= alike


def _bindings(loop: Loop) -> dict[str, list[ast.Assign | ast.AugAssign]]:
    """The assignments of a loop's body that bind one variable or attribute each."""
    found: dict[str, list[ast.Assign | ast.AugAssign]] = defaultdict(list)
    for node in walk(loop):
        if isinstance(node, ast.AugAssign):
            found[written(node.target)].append(node)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                parts = walk(target) if isinstance(target, ast.Tuple | ast.List) else [target]
                for part in parts:
                    if isinstance(part, ast.Name | ast.Attribute):
                        found[written(part)].append(node)
    return found


def comes_alike(script: Script, node: ast.AST, loop: ast.AST, own: set[str]) -> bool:
    """Whether the conditions around a node in a loop, or in another block, say the same on every process."""
    below = node
    for one in script.around(node):
        if one is loop:
            return True
        if isinstance(one, ast.Try | ast.While | ast.For | ast.IfExp):
            return False
        if isinstance(one, ast.If) and (below in one.orelse or may_differ(one.test, own)):
            return False
        below = one
    return False


def may_differ(test: ast.expr, own: set[str]) -> bool:
    """Whether a test asks for the batch, the rank, or what only a call tells: a clock, a random number."""
    nodes = walk(test)
    if any(isinstance(n, ast.Call) and not is_plain(n) for n in nodes) or asks_rank(test):
        return True
    return any(isinstance(n, ast.Name | ast.Attribute) and written(n) in own for n in nodes)


def is_plain(call: ast.Call) -> bool:
    """Whether a call tells the same on every process that gives it the same."""
    of_text = isinstance(call.func, ast.Attribute) and call.func.attr in _OF_TEXTS
    return of_text or written(call.func) in _PLAIN


def asks_rank(test: ast.expr) -> bool:
    return any(word in ast.unparse(test) for word in ("rank", "main", "master"))


def turns_of(loop: Loop) -> set[str]:
    """What counts the turns of a loop, also from one run of it to the next: `step += 1`, `step = step + 1`."""
    found = set[str]()
    for one in loop.body if isinstance(loop, ast.For) else ():
        target = one.targets[0] if isinstance(one, ast.Assign) else getattr(one, "target", None)
        text = written(target) if target is not None else ""
        if ast.unparse(one) in (f"{text} += 1", f"{text} = {text} + 1"):
            found.add(text)
    return found


def counters_of(loop: Loop, script: Script | None = None) -> set[str]:
    """`i` of `for i, batch in enumerate(loader)`, also where a variable of the script holds that: `bar = tqdm(enumerate(loader))`."""
    if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Tuple):
        return set()
    first, given = loop.target.elts[0], [loop.iter]
    if script is not None and isinstance(loop.iter, ast.Name):
        given = script.values(script.frame(loop), loop.iter.id) or given
    enumerates = all(
        any(isinstance(n, ast.Call) and written(n.func) == "enumerate" for n in walk(one)) for one in given
    )
    return {first.id} if enumerates and isinstance(first, ast.Name) else set()
