"""Functions that `torch.jit.script` compiles: TorchScript is no Python, and knows neither an Accelerator nor its device."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame
from crosstrain_migrate.core.reading.script import Script

_DECORATORS = ("torch.jit.script", "torch.jit.script_method", "torch.jit.export")


def compiled_functions(script: Script) -> set[Frame]:
    """The functions that are decorated or given to `torch.jit.script`, and the methods of the classes that are.

    `__init__` of a compiled module is Python.
    """
    compiled: list[ast.AST] = [n for call in script.calls for n in _given(script, call)]
    compiled += [n for n in script.table.parents if _is_decorated(script, n)]
    found: set[Frame] = set()
    for one in compiled:
        if isinstance(one, FUNCTIONS):
            found.add(one)
        elif isinstance(one, ast.ClassDef):
            found |= {method for method in script.methods(one) if method.name != "__init__"}
    return found


def _is_decorated(script: Script, node: ast.AST) -> bool:
    return isinstance(node, (*FUNCTIONS, ast.ClassDef)) and any(
        script.dotted(one) in _DECORATORS for one in node.decorator_list
    )


def _given(script: Script, call: ast.Call) -> list[ast.AST]:
    """What a call compiles: a function, or the class of an object."""
    if script.dotted(call.func) != "torch.jit.script" or not call.args:
        return []
    given = call.args[0]
    values = [given, *script.values(script.frame(call), ast.unparse(given))]
    made = [cls for value in values if (cls := script.class_made(value)) is not None]
    return [*made, *(script.functions(given.id) if isinstance(given, ast.Name) else [])]
