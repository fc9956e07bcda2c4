"""A script that names no device and computes with tensors that are surely on the CPU: it stays there."""

from __future__ import annotations

import ast
import re

from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script, is_method
from crosstrain_migrate.syntax.nodes import written
from crosstrain_migrate.syntax.walks import walk

from .made_tensors import makes_tensor

_CPU_TYPE = re.compile(r"torch\.\w*Tensor")


def computes_with_own_tensors(script: Script, roles: Roles) -> bool:
    """Whether what trains is called with a variable of a file that is bound outside of its loops and functions, so that no
    loader has moved it: `model(test_x)`."""
    models = {text for one in roles.optimizers for text in roles.models_of(one.frame, one.text)}
    return any(
        isinstance(given, ast.Name) and _is_bound_apart(script, given)
        for call in script.calls
        if written(call.func) in models
        for given in call.args
    )


def casts_to_cpu(script: Script, roles: Roles) -> bool:
    """Whether a training loop turns tensors into the CPU's: `y_pred.type(torch.DoubleTensor)`."""
    return any(
        is_method(node, "type") and node.args and _CPU_TYPE.fullmatch(script.dotted(node.args[0]))
        for one in roles.data
        if one.loop is not None
        for node in walk(one.loop)
    )


def _is_bound_apart(script: Script, name: ast.Name) -> bool:
    """Whether plain assignments outside of loops are all that binds a variable of a file, to what is not made on the device."""
    module = script.module(name)
    frame = script.frame(name)
    if frame is not module and script.binds(frame, name.id):
        return False
    stores, values = script.stores(module, name.id), script.values(module, name.id)
    is_plain = len(stores) == len(values) and not any(makes_tensor(script, one) for one in values)
    return bool(stores) and is_plain and not any(map(script.loops_around, stores))
