"""The modules that a file imports by a text which it puts together: `import_module("models." + name + "_model")`."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from .nodes import last_name
from .walks import walk

IMPORTS = ("import_module", "__import__")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_HOLE = re.compile(r"%[-#0 +]*[\d.]*[a-zA-Z]|\{[^{}]*\}")  # in a text to be formatted
_STARS = re.compile(r"\*+")


def computed_imports(tree: ast.Module) -> dict[ast.Call, str]:
    """For each call that imports a module by a text: the module's dotted name, with `*` for each part that is known only
    when it runs; "*" where nothing of it is known."""
    found: dict[ast.Call, str] = {}
    whole = walk(tree)
    if not _calls_in(whole):
        return found
    for scope in (one for one in whole if isinstance(one, (ast.Module, *_FUNCTIONS))):
        nodes = walk(scope)
        for call in _calls_in(nodes):  # an inner scope comes last
            found[call] = pattern_of(call.args[0], _set_once(nodes))
    return found


def _calls_in(nodes: list[ast.AST]) -> list[ast.Call]:
    return [n for n in nodes if isinstance(n, ast.Call) and last_name(n.func) in IMPORTS and n.args]


def named_by_options(tree: ast.Module) -> set[str]:
    """The options that name a module themselves: `trainer` of `import_module(args.trainer)`."""
    calls = (call for call, pattern in computed_imports(tree).items() if pattern == "*")
    return {call.args[0].attr for call in calls if isinstance(call.args[0], ast.Attribute)}


def values_of_options(tree: ast.Module, names: set[str]) -> Iterator[str]:
    """The texts that options of these names have by default, or may have: `add_argument("--trainer", default="train")`."""
    for call in walk(tree):
        if not isinstance(call, ast.Call) or last_name(call.func) != "add_argument":
            continue
        flags = [
            one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)
        ]
        if names.isdisjoint(one.lstrip("-").replace("-", "_") for one in flags):
            continue
        given = [one.value for one in call.keywords if one.arg in ("default", "choices")]
        texts = [n.value for one in given for n in walk(one) if isinstance(n, ast.Constant)]
        yield from (one for one in texts if isinstance(one, str))


def _set_once(nodes: list[ast.AST]) -> dict[str, ast.expr]:
    assigned = [
        (target.id, node.value)
        for node in nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    ]
    count = Counter(name for name, _ in assigned)
    return {name: value for name, value in assigned if count[name] == 1}


def pattern_of(node: ast.expr, names: dict[str, ast.expr] | None = None) -> str:
    """A text that is put together, with `*` for each part that is known only when it runs. names: variables that are known."""
    return _STARS.sub("*", _pattern(node, names or {}))


def _pattern(node: ast.expr, names: dict[str, ast.expr]) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name) if name in names:
            return _pattern(names[name], {other: value for other, value in names.items() if other != name})
        case ast.BinOp(op=ast.Add()):
            return _pattern(node.left, names) + _pattern(node.right, names)
        case ast.BinOp(left=ast.Constant(value=str(text)), op=ast.Mod()):
            return _HOLE.sub("*", text)
        case ast.JoinedStr():
            return "".join(_pattern(part, names) for part in node.values)
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str(text)), attr="format")):
            return _HOLE.sub("*", text)
        case ast.Call(
            func=ast.Attribute(value=ast.Constant(value=str(between)), attr="join"), args=[parts]
        ) if isinstance(parts, ast.List | ast.Tuple):
            return between.join(_pattern(part, names) for part in parts.elts)
    return "*"
