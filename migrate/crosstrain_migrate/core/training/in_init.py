"""Which attributes are prepared where `__init__` binds them, and what then knows the length of a prepared loader."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from crosstrain_migrate.core.reading.forms import Frame
from crosstrain_migrate.core.reading.roles import Stepped
from crosstrain_migrate.core.reading.script import Script
from crosstrain_migrate.syntax.nodes import Function, last_name, written

from .holders import Held
from .schedules import OwnSchedule, given_to


def places_in_init(
    script: Script, frame: Frame, those: Iterable[Held]
) -> tuple[Function | None, dict[Held, ast.stmt]]:
    """`__init__` of the class of a method, and where it binds the attributes of `those` that it alone binds."""
    cls = script.class_of(frame)
    methods = script.methods(cls) if cls is not None else []
    init = next((m for m in methods if m.name == "__init__"), None)
    if init is None or frame is init or _takes_device(script, init):
        return None, {}
    places: dict[Held, ast.stmt] = {}
    for one in those:
        stores = [(m, store) for m in methods for store in script.stores(m, one.text)]
        statements = [script.statement(store) for _, store in stores]
        is_bound = stores and not _binds_none(statements[-1])  # else another file binds it later
        if is_bound and all(m is init for m, _ in stores) and all(s in init.body for s in statements):
            places[one] = statements[-1]
    texts = {one.text for one in places}
    reads = [n for n in script.within(init) if isinstance(n, ast.Attribute) and written(n) in texts]
    return init, {} if any(_is_iterated(script, read) for read in reads) else places


def knows_own_length(script: Script, scheduler: Stepped, held: Iterable[Held]) -> bool:
    """Whether another method than `__init__`, where the loader is prepared, makes a schedule of the loader's length: one step
    a batch of one process fits it."""
    made = [v for v in script.values(scheduler.frame, scheduler.text) if isinstance(v, ast.Call)]
    given = [n for n in given_to(script, OwnSchedule(scheduler, tuple(made))) if isinstance(n, ast.Call)]
    asked = {written(one) for n in given if last_name(n.func) == "len" for one in n.args}
    found = [places_in_init(script, one.frame, [one]) for one in held if one.text in asked]
    return any(places and all(script.frame(one) is not init for one in made) for init, places in found)


def _is_iterated(script: Script, node: ast.AST) -> bool:
    parent = script.parent(node)
    return isinstance(parent, ast.Call) and last_name(parent.func) in ("iter", "cycle")


def _takes_device(script: Script, init: Function) -> bool:
    """Whether another script that shares a class tells `__init__` on which device the network computes, `.to(device)`: it may
    be another one than the accelerator's."""
    given = set(script.parameters(init)) if script.is_shared(init) else set()
    moves = [call for call in script.calls_in(init) if last_name(call.func) == "to"]
    places = [one for call in moves for one in (*call.args, *(k.value for k in call.keywords))]
    return any(isinstance(one, ast.Name) and one.id in given for one in places)


def _binds_none(statement: ast.stmt) -> bool:
    """`self.optimizer = None`"""
    value = getattr(statement, "value", None)
    return isinstance(value, ast.Constant) and value.value is None
