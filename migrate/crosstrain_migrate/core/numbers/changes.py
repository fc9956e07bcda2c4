"""What a statement does to a variable, sets it, adds to it or joins to it; which values are empty; and the assignment from which a
read has its value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from enum import Enum, auto

from crosstrain_migrate.core.reading.alike import counters_of, turns_of
from crosstrain_migrate.core.reading.forms import pairs
from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import place_of, written
from crosstrain_migrate.syntax.walks import stores_in, texts_in, walk

JOINS = {
    *("torch.cat", "torch.concat", "torch.vstack", "torch.hstack", "numpy.append", "numpy.concatenate"),
    *("numpy.vstack", "numpy.hstack", "np.append", "np.concatenate", "np.vstack", "np.hstack"),
}
_EMPTY = re.compile(r"0|0\.0*|\.0|-?0j|\[\]|\{\}|\(\)|None|''|list\(\)|dict\(\)|int\(\)|float\(\)")
_EMPTY_CALL = re.compile(
    r"(torch|np|numpy)\.(zeros|zeros_like|empty\(0|array\(\[\]|tensor\(\[\]|Tensor\(\))"
    r"|(torch|np|numpy)\.(tensor|Tensor|array)\((0(\.0*)?|\[0(\.0*)?(, 0(\.0*)?)*\])[,)]"
    r"|(collections\.)?(defaultdict|Counter|OrderedDict)\("
)
_SAME_VALUE = ("to", "cuda", "float", "double", "long", "int", "cpu", "reshape", "type", "astype")


class Change(Enum):
    """How a statement of a loop's body changes a variable."""

    SUM = auto()  # x += ...
    LIST = auto()  # x.append(...)
    JOIN = auto()  # x = torch.cat([x, ...])
    METER = auto()  # x.update(...)
    SET = auto()  # x = ...
    CARRIED = auto()  # x = f(x)
    OTHER = auto()


def assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    return [(target, node.value) for target in node.targets] if isinstance(node, ast.Assign) else []


def is_empty(value: ast.expr) -> bool:
    """Whether an expression is zero, or an empty container, or a container of such."""
    text = ast.unparse(value)
    if _EMPTY.fullmatch(text) or _EMPTY_CALL.match(text):
        return True
    if (
        isinstance(value, ast.Call)
        and isinstance(value.func, ast.Attribute)
        and value.func.attr in _SAME_VALUE
    ):
        return is_empty(value.func.value)
    if isinstance(value, ast.Dict):
        return all(is_empty(one) for one in value.values)
    if isinstance(value, ast.ListComp):
        return is_empty(value.elt)
    if isinstance(value, ast.DictComp):
        return is_empty(value.value)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) and isinstance(value.left, ast.List):
        return all(is_empty(one) for one in value.left.elts)
    return False


def is_open(value: ast.expr) -> bool:
    """Whether a start is an empty plain dictionary: each process would fill in other keys."""
    if isinstance(value, ast.Dict):
        return not value.keys
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "dict"


def bound_by(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr | None]]:
    """The variables that an assignment binds, each with its value where that is written out."""
    found: list[tuple[ast.expr, ast.expr | None]] = []
    for part, given in pairs(target, value):
        if isinstance(part, ast.Tuple | ast.List):
            inner = (one.value if isinstance(one, ast.Starred) else one for one in part.elts)
            found += [(one, None) for one in inner]
        else:
            found.append((part, given))
    return found


def changed_by(target: ast.expr) -> ast.expr:
    """The object that an assignment to `target` changes: d for d["k"]."""
    while isinstance(target, ast.Subscript):
        target = target.value
    return target


def is_read(node: ast.AST, text: str) -> bool:
    return (
        isinstance(node, ast.Name | ast.Attribute)
        and isinstance(node.ctx, ast.Load)
        and written(node) == text
    )


def reads(node: ast.AST, text: str) -> bool:
    """Whether code reads a variable, or an attribute."""
    return any(is_read(one, text) for one in walk(node))


def change_of(target: ast.expr, value: ast.expr | None) -> Change:
    """What an assignment of `value` to `target` is."""
    text = written(changed_by(target))
    if isinstance(target, ast.Subscript):
        return Change.OTHER
    if value is None or not reads(value, text):
        return Change.SET
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add) and written(value.left) == text:
        return Change.SUM
    branches = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
    if any(isinstance(one, ast.Call) and written(one.func) in JOINS for one in branches):
        return Change.JOIN
    return Change.CARRIED


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


def has_start(script: Script, loop: ast.stmt, text: str) -> bool:
    """Whether a function binds a variable above a loop, and does not delete it: a process may have no batch at all."""
    frame = script.frame(loop)
    gone = [n for n in script.within(frame) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Del)]
    changes = [*script.stores(frame, text), *(n for n in gone if n.id == text)]
    above = [one for one in changes if place_of(one) < place_of(loop)]
    return bool(above) and max(above, key=place_of) not in gone


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


def is_setting(script: Script, node: ast.expr) -> bool:
    """Whether a test tells an expression from a text, `mode == "all"`, or counts by it, `epoch % every == 0`: no number of the
    training, whatever else the dictionary holds that it is of."""
    text = ast.unparse(node)
    for one in script.within(script.frame(node)):
        if isinstance(one, ast.Compare) and isinstance(one.ops[0], ast.Eq | ast.NotEq):
            is_text = isinstance(getattr(one.comparators[0], "value", None), str)
            if is_text and ast.unparse(one.left) == text:
                return True
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Mod) and ast.unparse(one.right) == text:
            return True
    return False


def counts_rows(script: Script, roles: Roles, node: ast.AST) -> bool:
    """Whether one is added for each row of a batch, or for some batches by what is in them, and not once a step: in a loop within
    the pass, or under `if output.argmax() == y:`."""
    passes = {one.loop for one in roles.data} - {None}
    loops = script.loops_around(node)
    if not loops or passes.isdisjoint(loops):
        return False
    if loops[0] not in passes:
        return True
    own = set(map(written, stores_in(loops[0]))) - counters_of(loops[0], script) - turns_of(loops[0])
    tests = [
        one.test for one in script.around(node) if isinstance(one, ast.If) and loops[0] in script.around(one)
    ]
    return any(texts_in(test) & own for test in tests)
