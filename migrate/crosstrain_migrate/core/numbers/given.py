"""What a function does to what it is given: `step(batch, sums)`, which adds to the dictionary `sums`."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, words, written
from crosstrain_migrate.syntax.walks import walk_all

_OTHER = words("insert pop popleft popitem remove clear setdefault sort reverse")


def given_to(script: Script, call: ast.Call) -> list[tuple[str, Function, str]]:
    """The variables and attributes that a call gives to a function of the project, each with the parameter's name."""
    functions = script.functions_of(call)
    if len(functions) != 1:
        return []
    (function,) = functions
    given = script.given_by(call, function).items()
    return [(written(a), function, name) for name, a in given if isinstance(a, ast.Name | ast.Attribute)]


def what_becomes(script: Script, function: Function, name: str, depth: int = 3) -> set[str]:
    """What a function does to its parameter: "adds", "appends", "changes" otherwise, or calls the methods named."""
    found: set[str] = set()
    for node in walk_all(function.body):
        if isinstance(node, ast.AugAssign) and _is_part(node.target, name):
            found.add("adds" if isinstance(node.op, ast.Add) else "changes")
        elif isinstance(node, ast.Assign) and any(_is_part(target, name) for target in node.targets):
            found.add("changes")
        elif isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and _holder(node.func.value) == name:
                found |= _of_method(node.func)
            for text, called, parameter in given_to(script, node) if depth else ():
                if text == name and called is not function:
                    found |= what_becomes(script, called, parameter, depth - 1)
    return found


def _of_method(func: ast.Attribute) -> set[str]:
    if func.attr in ("append", "extend"):
        return {"appends"}
    if func.attr in _OTHER:
        return {"changes"}
    return {f".{func.attr}"} if isinstance(func.value, ast.Name) else set()


def _is_part(target: ast.expr, name: str) -> bool:
    """Whether a target is an entry of the variable `name`."""
    return isinstance(target, ast.Subscript) and _holder(target) == name


def _holder(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""
