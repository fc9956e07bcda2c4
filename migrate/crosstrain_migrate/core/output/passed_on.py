"""Where a script reads what it keeps in a variable, also under the names by which it is passed on."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from crosstrain_migrate.core.reading.forms import is_function_frame
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import last_name

# A function's variable; without a function, an attribute of any object, or a name of a module.
Holder = tuple[ast.AST | None, str]


def holders_of(script: Script, nodes: Iterable[ast.AST]) -> set[Holder]:
    """What stands for variables, attributes, and what has entries: `writers` of `writers["train"]`."""
    roots = (node.value if isinstance(node, ast.Subscript) else node for node in nodes)
    return {_holder(script, node) for node in roots if last_name(node)}


def _holder(script: Script, node: ast.AST) -> Holder:
    scope = script.table.of_node[node].resolve(node.id) if isinstance(node, ast.Name) else None
    return (scope.node if scope is not None and scope.is_function else None, last_name(node))


def reads_of(script: Script, holders: set[Holder], is_other: Callable[[ast.expr], bool]) -> list[ast.expr]:
    """What reads it, and is nothing other beside it: `x` is often something else in another function."""
    while True:
        names = {name for _, name in holders}
        reads: list[ast.expr] = [
            n
            for n in script.table.each(ast.Name, ast.Attribute)
            if last_name(n) in names
            and isinstance(n.ctx, ast.Load)
            and _holder(script, n) in holders
            and script.is_reached(n)
            and not is_other(n)
        ]
        passed_on = {one for read in reads for one in passed_to(script, read)}
        if passed_on <= holders:
            return reads
        holders |= passed_on


def passed_to(script: Script, read: ast.expr) -> set[Holder]:
    """What holds a value where it is given to a function, or assigned."""
    parent = script.parent(read)
    if isinstance(parent, ast.Subscript) and parent.value is read:  # one of several
        read, parent = parent, script.parent(parent)
    if isinstance(parent, ast.Assign) and parent.value is read:
        return holders_of(script, parent.targets)
    if isinstance(parent, ast.For) and parent.iter is read:
        return holders_of(script, [parent.target])
    number = parent.elts.index(read) if isinstance(parent, ast.Tuple) else None
    outer = script.parent(parent) if isinstance(parent, ast.Tuple) else parent
    if isinstance(outer, ast.Return):
        return _bound_by_callers(script, outer, number)
    return {*script.given_on(read)}


def _bound_by_callers(script: Script, node: ast.Return, number: int | None) -> set[Holder]:
    """What a function's callers bind its result to, or the part with a number; empty where one makes something else of it."""
    frame = script.frame(node)
    calls = script.callers(frame) if is_function_frame(frame) else []
    bound = [script.parent(call) for call in calls]
    targets = [target for one in bound if isinstance(one, ast.Assign) for target in one.targets]
    if not all(isinstance(one, ast.Assign) for one in bound):
        return set()
    if number is not None:
        parts = [one.elts[number : number + 1] if isinstance(one, ast.Tuple) else [] for one in targets]
        targets = [one for part in parts for one in part] if all(parts) else []
    return holders_of(script, targets)
