"""Functions that are handed on as values: `draw()` of a step that is given `self.sample`."""

from __future__ import annotations

import ast
from collections.abc import Callable

from crosstrain_migrate.syntax.nodes import Function, last_name

from .code import Code
from .forms import Frame

GivenFor = Callable[[Frame, str], list[tuple[ast.expr, ast.Call]]]


def handed(code: Code, func: ast.expr, given_for: GivenFor) -> list[Function]:
    """The functions that the calls of a function give for its parameter `func`, themselves or by a variable."""
    frame = code.frame(func)
    if not isinstance(func, ast.Name) or func.id not in code.parameters(frame):
        return []
    given = [value for value, _ in given_for(frame, func.id)]
    given += [
        one
        for value in given
        if isinstance(value, ast.Name)
        for one in code.values(code.frame(value), value.id)
    ]
    named = [last_name(one) for one in given if isinstance(one, ast.Name | ast.Attribute)]
    return [function for name in dict.fromkeys(named) for function in code.functions(name)]
