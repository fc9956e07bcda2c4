"""What a value is kept by: a variable, an attribute of an object's own, or an entry of a dictionary under a constant."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from crosstrain_migrate.syntax.nodes import last_name, written

from .code import Code
from .forms import is_method

Key = tuple[ast.AST, str]  # the scope that binds a variable, or the class of an attribute of `self`; its name


def is_root(node: ast.expr) -> bool:
    """Whether an expression is a variable, or an attribute of `self`."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and written(node.value) == "self")


def is_got(call: ast.Call) -> bool:
    """`config.get("lr", 0.1)`: an entry of a dictionary by another word."""
    is_named = bool(call.args) and isinstance(call.args[0], ast.Constant)
    return is_named and is_method(call, "get") and is_root(call.func.value)


def entry_of(key: Key, name: ast.expr) -> Key:
    return key[0], f"{key[1]}[{ast.unparse(name)}]"


def entries_of(value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """The keys and values of a dictionary that is written out, all keys being constants."""
    if not isinstance(value, ast.Dict) or not all(isinstance(key, ast.Constant) for key in value.keys):
        return []
    return [(key, one) for key, one in zip(value.keys, value.values, strict=True) if key is not None]


def tabled(script: Code, node: ast.expr) -> list[ast.expr]:
    """What an expression is, or may be where it is looked up in a table: `LOSSES[args.loss]`."""
    if not isinstance(node, ast.Subscript):
        return [node]
    text, frames = written(node.value), {script.frame(node), script.module(node)}
    tables = (value for frame in frames for value in script.values(frame, text))
    return [one for table in tables for _, one in entries_of(table)]


def parts(target: ast.expr) -> Iterator[ast.expr]:
    """The variables, attributes and entries that an assignment to `target` binds."""
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from parts(one)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def has_plain_keys(node: ast.expr) -> bool:
    """Whether an entry is one by words alone, `state["best"]["loss"]`, of a variable or of an attribute of `self`."""
    while isinstance(node, ast.Subscript):
        if not isinstance(node.slice, ast.Constant) or not isinstance(node.slice.value, str):
            return False
        node = node.value
    return isinstance(node, ast.Name) or written(getattr(node, "value", node)) == "self"


def texts_given(call: ast.Call) -> list[str]:
    return [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]


def option_of(call: ast.Call) -> str:
    """The attribute of the parsed options that `parser.add_argument("--save-to")` makes; empty for another call."""
    texts = texts_given(call)
    if last_name(call.func) not in ("add_argument", "option") or not texts:
        return ""
    dest = next((k.value for k in call.keywords if k.arg == "dest"), None)
    if isinstance(dest, ast.Constant):
        return str(dest.value)
    long = next((text for text in texts if text.startswith("--")), texts[0])
    return long.split("/")[0].lstrip("-").replace("-", "_")
