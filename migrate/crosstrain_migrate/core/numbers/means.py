"""What has a mean over the processes: no word that is chosen, no list, no truth, no text."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.core.reading.forms import Frame, is_method
from crosstrain_migrate.core.reading.ranges import is_range
from crosstrain_migrate.core.reading.script import Script, is_statement_call
from crosstrain_migrate.syntax.nodes import last_name, words, written
from crosstrain_migrate.syntax.walks import walk, walk_all

PASSED_ON = ("item", "float", "abs", "round", "detach", "cpu", "isnan", "isinf", "isfinite")
_CHOOSE = ("argmax", "argmin", "argsort", "topk", "multinomial", "choice", "choices", "randint", "randrange")
_STEPS = frozenset({"step", "zero_grad", "state_dict", "load_state_dict", "param_groups", "parameters"})
_COLLECT = ("array", "list", "cat", "stack", "numpy")
# What is asked of a number, or of a tensor that holds one: what has other members is an object, or rows of numbers.
_OF_NUMBERS = words(
    "item detach detach_ cpu cuda to data float double half mean sum abs max min numpy tolist clone round"
    " backward requires_grad grad dtype device type shape size dim ndim numel is_cuda squeeze view reshape real"
    " sqrt log exp pow div_ mul_ add_ isnan any all nelement retain_grad grad_fn"
)
# What is asked of a text, or of a path: its answer is a text, a place in it or a truth.
_OF_TEXTS = words(
    "format join split strip lstrip rstrip lower upper replace find rfind index startswith endswith encode decode"
    " basename dirname splitext read readline readlines"
)
_OTHERS = (ast.Compare, ast.BoolOp, ast.List, ast.ListComp, ast.Dict, ast.Set, ast.JoinedStr, ast.Tuple)


def is_number(script: Script, value: ast.expr, depth: int = 3) -> bool:
    """Whether a value may be a number: no list, no truth, no text."""
    if _is_text(value):
        return False
    if isinstance(value, ast.Call):
        if (copied := _copied(value)) is not None and has_no_mean(script, copied):
            return False
        if "state_dict" in last_name(value.func) or script.dotted(value.func) == "torch.load":
            return False  # weights
        functions = script.functions_of(value) if depth else []
        returned = (n.value for one in functions for n in script.within(one) if isinstance(n, ast.Return))
        is_plain = not (chooses(value) or is_object(script, value)) and last_name(value.func) not in _COLLECT
        otherwise = value.args[1:] if is_method(value, "get") else []
        is_plain = is_plain and all(is_number(script, one, 0) for one in otherwise)
        return is_plain and not any(_is_none(script, one, depth - 1) for one in returned if one is not None)
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    return not isinstance(value, _OTHERS)


def _copied(call: ast.Call) -> ast.expr | None:
    """`model` of `model.clone()` and of `copy.deepcopy(model)`"""
    name, of = last_name(call.func), call.func.value if isinstance(call.func, ast.Attribute) else None
    of = call.args[0] if name in ("copy", "deepcopy") and call.args else of if name == "clone" else None
    return of if isinstance(of, ast.Name | ast.Attribute) else None


def _is_text(value: ast.expr) -> bool:
    """Whether a value is a text, or what is asked of one: `"{}.log".format(k)`, `"%d" % k`, `kind.find("GAN")`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mod | ast.Add):
        return _is_text(value.left) or _is_text(value.right)
    is_text = isinstance(value, ast.JoinedStr) or isinstance(getattr(value, "value", None), str)
    return (
        is_text
        or is_method(value, *_OF_TEXTS)
        or (isinstance(value, ast.Call) and last_name(value.func) == "str")
    )


def _is_none(script: Script, returned: ast.expr, depth: int) -> bool:
    """Whether what a function returns is no number: `lines`, a list that it has filled."""
    is_list = isinstance(returned, ast.Name) and has_no_mean(script, returned)
    return is_list or not is_number(script, returned, depth)


def is_object(script: Script, value: ast.expr | None) -> bool:
    """Whether a value is an object of a class of the project: a meter is no number until it is asked for one."""
    return isinstance(value, ast.Call) and bool(script.classes(script.last(value.func)))


def has_no_mean(script: Script, node: ast.expr) -> bool:
    """Whether a variable holds what has no mean: a word that is chosen, a list, a batch, a count, what trains or is
    trained."""
    frame, text = script.frame(node), written(node)
    if any(
        isinstance(one, ast.Attribute) and one.attr in _STEPS and written(one.value) == text
        for one in script.within(frame)
    ):
        return True
    values = _all_values(script, node)
    if any(
        chooses(one) or isinstance(one, ast.Dict | ast.List) or is_next(one) or _is_made(one) or _is_text(one)
        for one in values
    ):
        return True
    if any(
        isinstance(n, ast.Slice) for one in values if isinstance(one, ast.Subscript) for n in walk(one.slice)
    ):
        return True
    reads = script.reads(frame, text)
    if any(isinstance(one, ast.Call) and is_range(one) for read in reads for one in script.around(read)):
        return True
    uses = [(script.parent(one), one) for one in _reads(script, frame, text)]
    if any(
        isinstance(use, ast.Attribute) and use.value is one and use.attr not in _OF_NUMBERS
        for use, one in uses
    ):
        return True
    keys = [
        use.slice for use, _ in uses if isinstance(use, ast.Subscript) and isinstance(use.slice, ast.Constant)
    ]
    return any(isinstance(key.value, str) for key in keys)


def _reads(script: Script, frame: Frame, text: str, depth: int = 2) -> Iterator[ast.expr]:
    """Where a variable is read, also by the functions that are given it: a `log` that one of them writes to."""
    for read in script.reads(frame, text):
        yield read
        for function, name in script.given_on(read) if depth else ():
            if not script.stores(function, name):
                yield from _reads(script, function, name, depth - 1)


def _all_values(script: Script, node: ast.expr, depth: int = 0) -> list[ast.expr]:
    """What a variable is bound to in its function, or an attribute in its class; depth: also what a parameter is given."""
    frame, text = script.frame(node), written(node)
    found = [value for one in script.homes(frame, text) for value in script.values(one, text)]
    given = [value for value, _ in script.given_for(frame, text)] if depth else []
    named = [value for value in given if isinstance(value, ast.Name)]
    return [*found, *given, *(v for one in named for v in _all_values(script, one, depth - 1))]


def holds_other(script: Script, node: ast.expr, bound: tuple[ast.stmt, ast.expr | None] | None) -> bool:
    """Whether a variable holds an object or the result of a test, also where it is an attribute that another method sets,
    `self.improved`, or is one of those that an `if` chooses from; bound: the statement and value that are read."""
    if any(map(_is_yes_or_no, _all_values(script, node, depth=3))):
        return True
    return bound is not None and (is_object(script, bound[1]) or bool(tests_in(script, node, bound[0])))


def _is_yes_or_no(value: ast.expr) -> bool:
    if isinstance(value, ast.BoolOp):  # `best or 0.0` is a number
        return any(map(_is_yes_or_no, value.values))
    is_not = isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.Not)
    is_constant = isinstance(value, ast.Constant) and isinstance(value.value, bool)
    return isinstance(value, ast.Compare) or is_not or is_constant


def is_rows(script: Script, node: ast.expr, statement: ast.stmt, value: ast.expr | None) -> bool:
    """Whether a statement binds a variable to what is no number: `distances = ranked(features)`, or the same part of several,
    `distances, names = compared(features)`, by what the functions of the project return."""
    if value is not None:
        return not is_number(script, value)
    target = statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(target, ast.Tuple) or not isinstance(statement, ast.Assign):
        return False
    place = next((n for n, one in enumerate(target.elts) if written(one) == written(node)), None)
    made = statement.value
    functions = script.functions_of(made)
    returned = [n.value for one in functions for n in script.within(one) if isinstance(n, ast.Return)]
    parts = [one.elts for one in returned if isinstance(one, ast.Tuple)]
    found = [one[place] for one in parts if place is not None and len(one) == len(target.elts)]
    return any(_is_none(script, one, 1) for one in found)


def _is_made(value: ast.expr) -> bool:
    """`DataLoader(rows)`: an object of a class, that of a tensor apart."""
    name = last_name(value.func) if isinstance(value, ast.Call) else ""
    return name[:1].isupper() and not name.endswith(("Tensor", "Variable"))


def number_in(value: ast.expr) -> list[ast.AST]:
    """Where a value that is kept may be read: itself, one of several, or what it is another word for."""
    if isinstance(value, ast.Tuple):
        return [one for part in value.elts for one in number_in(part)]
    return walk(value) if isinstance(value, ast.Call) and last_name(value.func) in PASSED_ON else [value]


def tests_in(script: Script, node: ast.expr, branches: ast.stmt) -> list[ast.expr]:
    """The tests to one of which an `if` binds a variable, which have no mean: `is_best = loss < best`."""
    values = script.values(script.frame(node), written(node)) if isinstance(branches, ast.If) else []
    inside = (one for one in values if script.table.is_inside(one, branches))
    return [one for one in inside if isinstance(one, ast.Compare | ast.BoolOp)]


def is_of_another(node: ast.expr) -> bool:
    """`log.columns["train"]`: an entry of another object's dictionary, which may hold names as well as numbers."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Constant):
        return False
    of = node.value
    is_named = isinstance(node.slice.value, str) and isinstance(of, ast.Attribute)
    return is_named and written(of).partition(".")[0] != "self"


def is_sequence(script: Script, entry: ast.Subscript) -> bool:
    """Whether an entry has entries of its own: `stats[key]` beside `stats[key][-1]`, its last number."""
    within = (n for n in script.within(script.frame(entry)) if isinstance(n, ast.Subscript))
    return any(ast.unparse(n.value) == ast.unparse(entry) for n in within)


def is_next(value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) == "next"


def chooses(value: ast.expr) -> bool:
    """Whether a value is a class, a word or a place that is chosen: `logits.argmax().item()`."""
    while is_method(value, *PASSED_ON):
        value = value.func.value
    return isinstance(value, ast.Call) and last_name(value.func) in _CHOOSE


def objects_told(script: Script, frame: Frame, loop: ast.For) -> set[str]:
    """The project's objects that a loop tells of each batch, and that keep it in a way of their own."""
    calls = [n for n in walk_all(loop.body) if isinstance(n, ast.Call) and is_statement_call(script, n)]
    texts = {written(call.func.value) for call in calls if isinstance(call.func, ast.Attribute)}
    return {one for one in texts if any(is_object(script, value) for value in script.values(frame, one))}
