"""Functions that are handed on as values: `draw()` of a step that is given `self.sample`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from crosstrain_migrate.syntax.nodes import Function, last_name

if TYPE_CHECKING:
    from .script import Script


def handed(script: Script, func: ast.expr) -> list[Function]:
    """The functions that the calls of a function give for its parameter `func`, themselves or by a variable."""
    frame = script.frame(func)
    if not isinstance(func, ast.Name) or func.id not in script.parameters(frame):
        return []
    given = [value for value, _ in script.given_for(frame, func.id)]
    given += [
        one
        for value in given
        if isinstance(value, ast.Name)
        for one in script.values(script.frame(value), value.id)
    ]
    named = [last_name(one) for one in given if isinstance(one, ast.Name | ast.Attribute)]
    return [function for name in dict.fromkeys(named) for function in script.functions(name)]
