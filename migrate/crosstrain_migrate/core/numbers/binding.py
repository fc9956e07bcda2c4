"""The assignment from which a read of a variable has its value."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import place_of, written


def binding(script: Script, root: ast.expr) -> tuple[ast.stmt, ast.expr | None] | None:
    """Behind what a variable has the value that a read sees, in a block around it: its last assignment there, with its
    value, or a loop or branch behind that which assigns it anew."""
    text, frame = written(root), script.frame(root)
    if not isinstance(root, ast.Name) and written(getattr(root, "value", root)) != "self":
        return None
    own = script.statement(root)  # `x = x.item()` reads what was bound above
    stores = [
        one
        for one in script.stores(frame, text)
        if place_of(one) < place_of(root)
        and (script.statement(one) is not own or not isinstance(own, ast.Assign))
    ]
    found: tuple[ast.stmt, ast.expr | None] | None = None
    for store in stores:
        statement = script.statement(store)
        if isinstance(statement, ast.Assign | ast.AugAssign) and _is_around(script, statement, root):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            found = (statement, statement.value if targets == [store] else None)
    found = found or _bound_by_branches(script, root, stores)
    if found is None or _is_carried(script, text, found[0], root):
        return None
    suite = script.suite_of(found[0])
    later = [
        one
        for one in suite[suite.index(found[0]) + 1 :]
        if not script.table.is_inside(root, one)
        and any(script.table.is_inside(store, one) for store in stores)
    ]
    return (later[-1], None) if later else found


def is_bound_before(script: Script, loop: ast.stmt, text: str) -> bool:
    """Whether every way to a loop binds a variable of its function, as far as the function binds it above the loop at all."""
    frame = script.frame(loop)
    stores = [one for one in script.stores(frame, text) if place_of(one) < place_of(loop)]
    if not stores or not text.isidentifier() or text in script.parameters(frame):
        return True
    own = {script.statement(one) for one in stores}
    around = [loop, *(one for one in script.around(loop) if isinstance(one, ast.stmt) and one is not frame)]
    tests = {ast.unparse(one.test) for one in around if isinstance(one, ast.If)}

    def binds(statement: ast.stmt) -> bool:
        if isinstance(statement, ast.If):
            is_sure = ast.unparse(statement.test) in tests or closes(statement.orelse)
            return is_sure and closes(statement.body)
        if isinstance(statement, ast.With | ast.Try):
            return any(map(binds, statement.body))
        return statement in own

    def closes(suite: list[ast.stmt]) -> bool:
        leaves = bool(suite) and isinstance(suite[-1], ast.Raise | ast.Return | ast.Continue | ast.Break)
        return leaves or any(map(binds, suite))

    above = (one for place in around for one in script.suite_of(place) if place_of(one) < place_of(place))
    return any(map(binds, above))


def is_filled_below(script: Script, entry: ast.Subscript, bound: ast.stmt, end: ast.stmt) -> bool:
    """Whether an entry of a dictionary is set, or told something, between two statements: `means[name].add(loss)`."""
    of = ast.unparse(entry.value)
    entries = [
        node
        for node in script.within(script.frame(entry))
        if isinstance(node, ast.Subscript)
        and ast.unparse(node.value) == of
        and place_of(bound) < place_of(node) < place_of(end)
        and not script.table.is_inside(node, bound)
    ]
    return any(isinstance(one.ctx, ast.Store) or _is_told(script, one) for one in entries)


def _is_told(script: Script, node: ast.expr) -> bool:
    """Whether a method of an object is called, and nothing is made of what it returns."""
    member = script.parent(node)
    call = script.parent(member) if isinstance(member, ast.Attribute) else None
    return isinstance(call, ast.Call) and call.func is member and is_statement_call(script, call)


def _bound_by_branches(
    script: Script, root: ast.expr, stores: Sequence[ast.expr]
) -> tuple[ast.stmt, ast.expr | None] | None:
    """An `if` with an `else`, above a read and in a block around it, whose branches bind the variable."""
    branches = [
        one
        for store in stores
        for one in script.around(store)
        if isinstance(one, ast.If) and one.orelse and _is_around(script, one, root)
    ]
    is_inside = [one for one in branches if script.table.is_inside(root, one)]
    return (branches[-1], None) if branches and not is_inside else None


def _is_carried(script: Script, text: str, bound: ast.stmt, root: ast.AST) -> bool:
    """Whether a loop around a read, but not around an assignment above it, assigns the variable anew."""
    loops = [loop for loop in script.loops_around(root) if loop not in script.loops_around(bound)]
    stores = script.stores(script.frame(root), text)
    return any(script.table.is_inside(store, loop) for loop in loops for store in stores)


def _is_around(script: Script, statement: ast.stmt, node: ast.AST) -> bool:
    """Whether a statement stands in a block that a node stands in, too."""
    suite = script.suite_of(statement)
    return any(one in suite for one in (script.statement(node), *script.around(node)))
