"""A script that names no device and calls its model with a tensor that no loader has moved: it stays on the CPU."""

from __future__ import annotations

import ast

from crosstrain_migrate.core.reading.roles import Roles
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import written

from .made_tensors import makes_tensor


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


def _is_bound_apart(script: Script, name: ast.Name) -> bool:
    """Whether plain assignments outside of loops are all that binds a variable of a file, to what is not made on the device."""
    module = script.module(name)
    frame = script.frame(name)
    if frame is not module and script.binds(frame, name.id):
        return False
    stores, values = script.stores(module, name.id), script.values(module, name.id)
    is_plain = len(stores) == len(values) and not any(makes_tensor(script, one) for one in values)
    return bool(stores) and is_plain and not any(map(script.loops_around, stores))
