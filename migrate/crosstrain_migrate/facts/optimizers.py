"""Optimizer classes of the script's own that hold another optimizer."""

from __future__ import annotations

import ast

from . import torch_api as api
from .code import Code
from .values import External, Instance, Value


def inner_optimizers(facts: Code, optimizers: set[Value]) -> set[Value]:
    """Optimizers that one of the script's own makes or is given: the script steps only the outer one."""
    own = [v for v in optimizers if isinstance(v, Instance)]
    made = {one.cls for one in own if one.site is not one.cls}
    held = {v for one in own for v in handed(facts, one)}
    inner: set[Value] = {
        v
        for v in optimizers
        if isinstance(v, External)
        and (v in held or any(around in made for around in facts.table.ancestors(v.site)))
    }
    unmade = {one for one in own if one.site is one.cls and one.cls in made}  # `self` of what nothing calls
    return inner | unmade


def handed(facts: Code, optimizer: Value) -> set[Value]:
    """The optimizers of torch's that the constructor of one of the script's own is given."""
    if not isinstance(optimizer, Instance) or not isinstance(optimizer.site, ast.Call):
        return set()
    given = {v for argument in optimizer.site.args for v in facts.of(argument)}
    return {v for v in given if isinstance(v, External) and api.is_optimizer_class(v.path)}
