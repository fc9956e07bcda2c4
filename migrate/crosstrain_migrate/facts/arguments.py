"""What a call gives: its arguments by position and name."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import FunctionNode


def keywords_of(node: ast.Call) -> dict[str, ast.expr]:
    return {k.arg: k.value for k in node.keywords if k.arg is not None}


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """What a call gives by this name."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def given(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """What a call gives by this name or at this position."""
    found = keyword_of(call, name)
    return call.args[position] if found is None and len(call.args) > position else found


def arguments_of(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(k.value for k in node.keywords)]


def argument_of(node: ast.Call, function: FunctionNode, name: str, bound: bool) -> ast.expr | None:
    """The expression that a call gives for parameter `name`; `bound`: the first parameter is the receiver."""
    keyword = keyword_of(node, name)
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][bound:]
    if keyword is not None or name not in names:
        return keyword
    index = names.index(name)
    plain = index < len(node.args) and not any(isinstance(a, ast.Starred) for a in node.args[: index + 1])
    return node.args[index] if plain else None
