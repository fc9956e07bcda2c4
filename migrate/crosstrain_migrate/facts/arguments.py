"""What stands in the text of calls, functions and assignments: arguments, parameters, returned and assigned parts."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.nodes import FunctionNode
from crosstrain_migrate.syntax.scopes import ScopeTable
from crosstrain_migrate.syntax.walks import walk


def keywords_of(node: ast.Call) -> dict[str, ast.expr]:
    return {k.arg: k.value for k in node.keywords if k.arg is not None}


def keyword_of(call: ast.Call, name: str) -> ast.expr | None:
    """The argument of this name."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def given(call: ast.Call, name: str, position: int) -> ast.expr | None:
    """The argument of this name, or at this position."""
    found = keyword_of(call, name)
    return call.args[position] if found is None and len(call.args) > position else found


def arguments_of(node: ast.Call) -> list[ast.expr]:
    return [*node.args, *(k.value for k in node.keywords)]


def positional_of(function: FunctionNode) -> list[ast.arg]:
    """The parameters that a call may give by position."""
    return [*function.args.posonlyargs, *function.args.args]


def returned_by(table: ScopeTable, function: FunctionNode) -> list[ast.expr]:
    """What the return statements of a function return, without those of the functions inside it."""
    returns = (
        n for n in walk(function) if isinstance(n, ast.Return) and table.function_around(n) is function
    )
    return [n.value for n in returns if n.value is not None]


def pairs_of(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    """What an assignment gives to which target: of `a, b = c, d`, each part; otherwise the whole."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return list(zip(target.elts, value.elts, strict=True))
    return [(target, value)]


def argument_of(node: ast.Call, function: FunctionNode, name: str, bound: bool) -> ast.expr | None:
    """The expression that a call gives for parameter `name`; `bound`: the first parameter is the receiver."""
    keyword = keyword_of(node, name)
    names = [a.arg for a in positional_of(function)][bound:]
    if keyword is not None or name not in names:
        return keyword
    index = names.index(name)
    plain = index < len(node.args) and not any(isinstance(a, ast.Starred) for a in node.args[: index + 1])
    return node.args[index] if plain else None
