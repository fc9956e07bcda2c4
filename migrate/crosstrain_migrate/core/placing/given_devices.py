"""A device that a class or function of another file is given: other scripts of the project give it theirs."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.forms import Frame, is_function_frame
from crosstrain_migrate.core.reading.modes import opposed
from crosstrain_migrate.core.reading.reached import held_by_file
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, defaults_by_name, written

from .by_machine import follows
from .sides import side_of


def is_given(script: Script, call: ast.Call) -> bool:
    """`self.device = torch.device(device)` of `__init__` or another method, where all that the script gives is a variable
    that holds a device, and so becomes the accelerator's."""
    frame = script.frame(call)
    given = call.args[0] if len(call.args) == 1 else None
    if given is not None and _is_told_device(script, frame, given):
        return True
    if not script.is_entry(call) and is_function_frame(frame) and _is_of_options(frame, given):
        return not any(k.arg == "device" for one in script.callers(frame) for k in one.keywords)
    cls = script.class_of(frame)
    if not isinstance(given, ast.Name) or not is_function_frame(frame) or script.is_entry(call):
        return False
    name = given.id
    own = [one for one in script.values(frame, name) if one is not call]
    if _is_nobodys(script, frame, name) and all(
        side_of(script, one) or follows(script, frame, one) for one in own
    ):
        return True
    bound = script.statement(call)
    stores = [s for s in script.stores(frame, name) if script.statement(s) is not bound]
    stores = [s for s in stores if not opposed(script, s, call)]
    if name not in script.parameters(frame) or stores:
        return False
    is_init = cls is not None and frame.name == "__init__"
    made = [one for one in script.calls if _is_made(script, one, cls)] if is_init else script.callers(frame)
    values = [(one, script.argument_for(one, frame, name)) for one in made]
    return bool(values) and all(_is_device(script, one, value) for one, value in values)


def _is_told_device(script: Script, frame: Frame, given: ast.expr) -> bool:
    """Whether an object that other scripts make as well was told its device: `self.device` of `def __init__(self, path, device)`."""
    if not script.is_shared(given) or not written(given).startswith("self."):
        return False
    homes = [home for home in script.homes(frame, written(given)) if script.stores(home, written(given))]
    told = [(home, value) for home in homes for value in script.values(home, written(given))]
    return bool(told) and all(
        isinstance(one, ast.Name) and one.id in script.parameters(home) for home, one in told
    )


def is_set_by_file(script: Script, given: ast.expr | None) -> bool:
    """Whether a setting names a GPU in the file that makes it, `cfg.MODEL.DEVICE`, which then names the process's own unless a
    file of settings or the command line names another."""
    if not isinstance(given, ast.Attribute) or not isinstance(given.value, ast.Attribute):
        return False
    stores = [s for s in script.table.each(ast.Assign) if isinstance(s.targets[0], ast.Attribute)]
    values = [
        s.value for s in stores if written(s.targets[0]).endswith(f".{written(given).partition('.')[2]}")
    ]
    return bool(values) and all(isinstance(v, ast.Constant) and side_of(script, v) == "gpu" for v in values)


def is_found(script: Script, given: ast.expr) -> bool:
    """Whether a function that other scripts call as well has found a device before: `args.device = place["device"]`."""
    values = script.values(script.frame(given), written(given))
    return script.is_shared(given) and bool(values) and not any(side_of(script, one) for one in values)


def _is_nobodys(script: Script, function: Function, name: str, depth: int = 3) -> bool:
    """Whether a parameter is None unless another script gives it: `if device is None: device = "cuda"` is of this one."""
    default = defaults_by_name(function.args).get(name)
    given = [value for value, _ in script.given_for(function, name)]
    return (
        isinstance(default, ast.Constant)
        and default.value is None
        and all(
            isinstance(one, ast.Name)
            and bool(depth)
            and is_function_frame(outer := script.frame(one))
            and _is_nobodys(script, outer, one.id, depth - 1)
            for one in given
        )
    )


def _is_of_options(function: Function, given: ast.expr | None) -> bool:
    """`kwargs.pop("device", other)` of a function with `**kwargs`"""
    options = function.args.kwarg.arg if function.args.kwarg is not None else ""
    asks = isinstance(given, ast.Call) and written(given.func) in (f"{options}.pop", f"{options}.get")
    return asks and isinstance(given, ast.Call) and "device" in map(_text, given.args)


def _text(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _is_made(script: Script, call: ast.Call, cls: ast.ClassDef | None) -> bool:
    """Whether a call makes an object of a class, or of one that takes over its `__init__`."""
    found = script.classes(script.last(call.func))
    inits = [m for one in found for m in script.all_methods(one) if m.name == "__init__"]
    return cls in found or (bool(inits) and script.class_of(inits[0]) is cls)


def _is_device(script: Script, call: ast.Call, given: ast.expr | None, depth: int = 3) -> bool:
    """Whether a call gives a variable, or an attribute of its own object, that holds a device which the script chooses, or
    a function that it calls is given."""
    if not isinstance(given, ast.Name | ast.Attribute):
        return False
    frame = script.frame(call)
    frames: list[Frame] = [frame] if isinstance(given, ast.Name) else []
    cls = script.class_of(frame)
    if cls is not None and written(given).startswith("self."):
        frames = [*script.methods(cls)]
    values = [value for one in frames for value in script.values(one, written(given))]
    if not frames and is_set_by_file(script, given):
        return True
    if depth and not values and is_function_frame(frame) and written(given) in script.parameters(frame):
        passed = script.given_for(frame, written(given))
        is_known = len(passed) == len(script.callers(frame)) > 0
        return is_known and all(_is_device(script, one, value, depth - 1) for value, one in passed)
    return bool(values) and all(
        side_of(script, one) or (isinstance(one, ast.Call) and script.dotted(one.func) == "torch.device")
        for one in values
    )


def runs(script: Script, call: ast.Call, function: Function) -> bool:
    """Whether a call of that name is of this function: none of another file, of a network's `train()`, or of an object of
    another class."""
    cls, needed = script.class_of(function), function.args
    if (
        cls is None
        and isinstance(call.func, ast.Attribute)
        and function not in held_by_file(script, call.func)
    ):
        return False  # `yaml.load(file)` beside `def load(name, device="cuda")`
    if cls is None or script.last(call.func) == cls.name:
        return not script.calls_other(call, function)
    if written(call.func) == function.name:
        return False  # a plain function
    given = [*call.args, *call.keywords]
    is_open = any(isinstance(one, ast.Starred) or getattr(one, "arg", "") is None for one in given)
    if not is_open and len(given) < len(needed.posonlyargs) + len(needed.args) - len(needed.defaults) - 1:
        return False
    if len(script.functions(function.name)) == 1 or not isinstance(call.func, ast.Attribute):
        return True
    holder = script.class_of(script.frame(call))
    if written(call.func.value) == "self" and holder is not None:
        return holder is cls or function.name not in {one.name for one in script.methods(holder)}
    frames = [script.frame(call), *script.methods(holder)]
    made = [value for one in frames for value in script.values(one, written(call.func.value))]
    return any(script.class_made(value) is cls for value in made)
