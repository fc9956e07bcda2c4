"""Calls of methods of values that have no definition here: models, optimizers, containers."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts import torch_api as api
from crosstrain_migrate.facts.arguments import given
from crosstrain_migrate.facts.evidence import COMPARES
from crosstrain_migrate.facts.interpretation import Interpretation
from crosstrain_migrate.facts.lifetimes import kept, made_global
from crosstrain_migrate.facts.memory import ANY, key_of
from crosstrain_migrate.facts.torch_api import words
from crosstrain_migrate.facts.values import (
    NOTHING,
    UNKNOWN,
    External,
    FromBatch,
    Function,
    Instance,
    Member,
    Parameters,
    Sequence,
    Unknown,
    Value,
    Values,
)

from .modules import call_module
from .tensor_functions import call_tensor_method, of_unknown

PARAMETERS = words("parameters named_parameters")
# Methods of a module or a tensor that return what they are called on.
SAME_OBJECT = words("to cuda cpu train eval apply requires_grad_ compile double float half bfloat16")
_PARTS = words("modules children values")
_NAMED_PARTS = words("named_modules named_children items")


def call_member(interp: Interpretation, function: Member, node: ast.Call) -> Values:
    owner, name = function.receiver, function.name
    if name in {"format", "join"} and isinstance(owner, Unknown):
        return UNKNOWN
    if isinstance(owner, FromBatch):
        return call_tensor_method(interp, owner, name, node)
    if name in PARAMETERS:
        if isinstance(owner, External):
            interp.note_modules({owner})  # nothing else has any
        if isinstance(owner, Member) and interp.is_module(owner.root):
            return frozenset({Parameters(owner)})
    if isinstance(owner, External | Instance):
        found = _call_object_method(interp, owner, name, node)
        if found is not None:
            return found
    if isinstance(owner, Sequence):
        return _call_container_method(interp, owner, name, node)
    rows: Values = NOTHING
    if name in COMPARES and node.args:  # of the rows that it is compared with
        rows = frozenset(v for v in interp.of(node.args[0]) if isinstance(v, FromBatch) and v.kind == "rows")
    return rows or of_unknown(interp, node)


def _call_object_method(
    interp: Interpretation, owner: External | Instance, name: str, node: ast.Call
) -> Values | None:
    if name in PARAMETERS:
        return frozenset({Parameters(owner)})
    if name in SAME_OBJECT:
        return frozenset({owner})
    if interp.is_module(owner):
        if name in {"forward", "__call__"}:
            return call_module(interp, node)
        if name in {"buffers", "state_dict", "load_state_dict", "keys"}:
            return UNKNOWN
        if name in _PARTS | _NAMED_PARTS:
            return _submodules(interp, owner, name, node)
        return of_unknown(interp, node)
    if isinstance(owner, External) and api.is_optimizer_class(owner.path):
        return _step(interp, owner.path, node) if name == "step" else UNKNOWN
    return frozenset({External("argparse.Namespace", node)}) if name == "parse_args" else None


def closure_of(node: ast.Call) -> ast.expr | None:
    """What a call of `step` is given to evaluate."""
    return given(node, "closure", 0)


def _step(interp: Interpretation, path: str, node: ast.Call) -> Values:
    """`optimizer.step(closure)` returns what the closure does: a global number where a line search decides by it."""
    closure = closure_of(node)
    closures = [v.node for v in interp.of(closure) if isinstance(v, Function)] if closure is not None else []
    if not closures:
        return UNKNOWN
    found = frozenset(v for closure in closures for v in interp.returns[closure])
    return made_global(found) if api.searches(path) else found


def _submodules(interp: Interpretation, owner: External | Instance, name: str, node: ast.Call) -> Values:
    """The parts of a module, one by one, or in pairs with their names."""
    part: Value = External(api.SUBMODULE, owner.site)
    if name in _NAMED_PARTS:
        part = _pair(interp, node, frozenset({part}))
    interp.store(node.func, ANY, {part})
    return frozenset({Sequence(node.func)})


def _pair(interp: Interpretation, node: ast.Call, values: Values) -> Sequence:
    """A name or key with one of `values`, as `items` yields them."""
    interp.store(node, 0, UNKNOWN)
    interp.store(node, 1, values)
    return Sequence(node)


def _element_or_default(interp: Interpretation, owner: Sequence, name: str, node: ast.Call) -> Values:
    """`sums.get("loss", 0)`: an element, or the default."""
    key = key_of(node.args[0]) if node.args and name != "pop" else ANY
    default = interp.of(node.args[1]) if len(node.args) > 1 else NOTHING if name == "pop" else UNKNOWN
    if name == "setdefault":
        interp.store(owner.site, key, default)
    return interp.element(owner, key) | default


def _call_container_method(interp: Interpretation, owner: Sequence, name: str, node: ast.Call) -> Values:
    if name in {"append", "add", "insert", "appendleft", "extend"} and node.args:
        added = interp.of(node.args[-1])
        if name == "extend":
            added = frozenset(e for v in interp.of(node.args[0]) for e in interp.element(v))
        interp.store(owner.site, ANY, kept(interp, added, owner.site, node))
        return UNKNOWN
    if name in {"values", "copy"}:
        return frozenset({owner})
    if name in {"pop", "get", "setdefault"}:
        return _element_or_default(interp, owner, name, node)
    if name == "items":
        interp.store(node.func, ANY, {_pair(interp, node, interp.element(owner))})
        return frozenset({Sequence(node.func)})
    return UNKNOWN
