"""A device that a class of another file is given: other scripts of the project give it theirs."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.script import Script, is_function_frame
from crosstrain_migrate.syntax.nodes import Function, defaults_by_name, last_name, written

from .own_moves import classes_of
from .sides import side_of


def is_given(script: Script, call: ast.Call) -> bool:
    """`self.device = torch.device(device)` where all that the script gives is a variable that holds a device, and so becomes
    the accelerator's."""
    frame = script.frame(call)
    given = call.args[0] if len(call.args) == 1 else None
    cls = script.class_of(frame)
    if not isinstance(given, ast.Name) or cls is None or not is_function_frame(frame):
        return False
    name = given.id
    if script.is_entry(call) or name not in script.parameters(frame) or script.stores(frame, name):
        return False
    made = [one for one in script.calls if _is_made(script, one, cls, 0)] if frame.name == "__init__" else []
    values = [(one, script.argument_for(one, frame, name)) for one in made]
    return bool(values) and all(_is_device(script, one, value) for one, value in values)


def takes_over(script: Script, call: ast.Call, function: Function) -> bool:
    """Whether a call of a function's name can be its: it gives what that needs, and is not of an object whose own class has
    another method of the name, `model.train()` beside `def train(self, rows, device="cuda")`."""
    if script.class_of(function) is not None and written(call.func) == function.name:
        return False  # a plain function
    named, taken = function.args, int(script.class_of(function) is not None)
    own = [one.arg for one in (*[*named.posonlyargs, *named.args][taken:], *named.kwonlyargs)]
    needed = [name for name in own if name not in defaults_by_name(named)]
    is_open = any(isinstance(one, ast.Starred) for one in call.args) or any(
        k.arg is None for k in call.keywords
    )
    if not is_open and any(script.argument_for(call, function, name) is None for name in needed):
        return False
    of = call.func.value if isinstance(call.func, ast.Attribute) else None
    made = classes_of(script, of) if of is not None else []
    own_methods = [one for cls in made for one in script.methods(cls) if one.name == function.name]
    return function in own_methods or len(own_methods) < len(made) or not made


def _is_made(script: Script, call: ast.Call, cls: ast.ClassDef, depth: int) -> bool:
    """Whether a call makes an object of a class, or of one that takes over its `__init__`."""
    found = script.classes(script.last(call.func))
    while found and cls not in found and depth < 6:
        if any(method.name == "__init__" for one in found for method in script.methods(one)):
            return False
        found = [base for one in found for name in one.bases for base in script.classes(last_name(name))]
        depth += 1
    return cls in found


def _is_device(script: Script, call: ast.Call, given: ast.expr | None) -> bool:
    """Whether a call gives a variable that holds a device which the script chooses."""
    if not isinstance(given, ast.Name):
        return False
    values = script.values(script.frame(call), given.id)
    return bool(values) and all(
        side_of(script, one) or (isinstance(one, ast.Call) and script.dotted(one.func) == "torch.device")
        for one in values
    )
