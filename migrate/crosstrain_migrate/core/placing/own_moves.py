"""Code of the project that the accelerator's device cannot be put into: modules that move themselves, since a class with a `cuda()`
of its own also moves what is no parameter or buffer, and functions that `torch.jit.script` compiles, since TorchScript is no
Python and knows neither an Accelerator nor its device.
"""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import FUNCTIONS, Frame, is_function_frame
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, written

_DECORATORS = ("torch.jit.script", "torch.jit.script_method", "torch.jit.export")


def has_own_cuda(script: Script, of: ast.expr) -> bool:
    """Whether what is made here, or what a variable or an attribute may hold, has a `cuda()` of its own: `.to(device)` would
    not call it."""
    return any(one.name == "cuda" for cls in _classes(script, of) for one in script.all_methods(cls))


def has_nothing_else(script: Script, of: ast.expr) -> bool:
    """Whether its `cuda()` is all that moves it: a plain class without a `to()`; or the object itself calls its method, which
    may move what it is given."""
    if written(of) == "self":
        return True
    classes = _classes(script, of)
    plain = (not (cls.bases or cls.keywords) or _is_object(cls) for cls in classes)
    return all(plain) and not any(one.name == "to" for cls in classes for one in script.methods(cls))


def is_told(script: Script, call: ast.Call) -> bool:
    """Whether a class that also has a `to()` moves a part of itself where `cuda(device)` is told to."""
    frame = script.frame(call)
    cls = script.class_of(frame)
    if not is_function_frame(frame) or frame.name != "cuda" or cls is None or script.is_entry(call):
        return False
    given = [written(one) for one in call.args]
    return given[:1] == script.parameters(frame)[1:2] != [] and "to" in (m.name for m in script.methods(cls))


def _is_object(cls: ast.ClassDef) -> bool:
    return [written(base) for base in cls.bases] == ["object"]


def _classes(script: Script, of: ast.expr) -> list[ast.ClassDef]:
    """The classes of the project of what is made here, or of what a variable or an attribute may hold."""
    if written(of) == "self":
        return [one for one in script.around(of) if isinstance(one, ast.ClassDef)][:1]
    values: list[ast.expr] = [of] if isinstance(of, ast.Call) else []
    if isinstance(of, ast.Name | ast.Attribute):
        frame = script.frame(of)
        cls = script.class_of(frame)
        frames = [frame, script.module(of), *script.methods(cls)]
        given = [one for one, _ in script.given_for(frame, written(of))]
        texts = [(one, written(of)) for one in frames] + [(script.frame(one), written(one)) for one in given]
        values = [*given, *(value for one, text in texts for value in script.values(one, text))]
    return [made for value in values if (made := script.class_behind(value)) is not None]


def compiled_functions(script: Script) -> set[Frame]:
    """The functions that are decorated or given to `torch.jit.script`, and the methods of the classes that are.

    `__init__` of a compiled module is Python.
    """
    compiled: list[ast.AST] = [n for call in script.calls for n in _given(script, call)]
    compiled += [n for n in script.table.each(*FUNCTIONS, ast.ClassDef) if _is_decorated(script, n)]
    found: set[Frame] = set()
    for one in compiled:
        if isinstance(one, FUNCTIONS):
            found.add(one)
        elif isinstance(one, ast.ClassDef):
            found |= {method for method in script.methods(one) if method.name != "__init__"}
    return found


def _is_decorated(script: Script, node: Function | ast.ClassDef) -> bool:
    return any(script.dotted(one) in _DECORATORS for one in node.decorator_list)


def _given(script: Script, call: ast.Call) -> list[ast.AST]:
    """What a call compiles: a function, or the class of an object."""
    if script.dotted(call.func) != "torch.jit.script" or not call.args:
        return []
    given = call.args[0]
    values = [given, *script.values(script.frame(call), ast.unparse(given))]
    made = [cls for value in values if (cls := script.class_made(value)) is not None]
    return [*made, *(script.functions(given.id) if isinstance(given, ast.Name) else [])]
