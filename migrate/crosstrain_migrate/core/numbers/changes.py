"""What a statement does to a variable: sets it, adds to it, joins to it; and which values are empty."""

from __future__ import annotations

import ast
import re
from enum import Enum, auto

from crosstrain_migrate.core.reading.forms import pairs
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

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
