"""Attributes: what `owner.name` may be, depending on what the owner is."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.program import LOCAL

from . import tensors
from . import torch_api as api
from .interpretation import Interpretation
from .values import (
    NOTHING,
    UNKNOWN,
    Class,
    FromBatch,
    Function,
    Instance,
    Member,
    Method,
    Sequence,
    Symbol,
    Value,
    Values,
)
from .widening import may_have


def attribute(interp: Interpretation, owner: Value, name: str, node: ast.expr) -> Values:
    """What `owner.name`, read at `node`, may be."""
    if isinstance(owner, Symbol):
        if owner.path.startswith(LOCAL) and name != "__dict__":
            return of_module(interp, owner.path.removeprefix(LOCAL), name)
        return frozenset({Symbol(api.canonical(f"{owner.path}.{name}"))})
    if isinstance(owner, Instance):
        return _of_instance(interp, owner, name)
    if isinstance(owner, Class):
        method = interp.method(owner.node, name)
        if method is not None:
            return frozenset({Function(method)})
        found = _of_class(interp, owner.node, name)
        return UNKNOWN if found is None else found
    if isinstance(owner, FromBatch):
        return _of_batch_value(interp, owner, name, node)
    if isinstance(owner, Sequence) and (owner.site, name) in interp.heap:
        return interp.heap.get((owner.site, name))  # a field of a named tuple
    stored = interp.heap.get((interp.tree, (owner, name)))
    return stored | ({Member(owner, name)} if may_have(owner, name) else UNKNOWN)


def _of_instance(interp: Interpretation, owner: Instance, name: str) -> Values:
    method = interp.method(owner.cls, name)
    if method is not None:
        decorators = {getattr(d, "id", "") for d in getattr(method, "decorator_list", ())}
        if "property" in decorators:
            return frozenset(interp.returns[method])
        if "staticmethod" in decorators:
            return frozenset({Function(method)})
        return frozenset({Method(owner, Function(method))})
    found = _of_class(interp, owner.cls, name)
    return found if found is not None else frozenset({Member(owner, name)})


def _of_class(interp: Interpretation, cls: ast.ClassDef, name: str) -> Values | None:
    """`Config.device`: what the body of the class binds, or what is stored in it; None: nothing of that name."""
    classes = _with_bases(interp, cls)
    bodies = [scope for scope in map(interp.table.scopes.__getitem__, classes) if name in scope.names]
    stored = (interp.heap.get((node, name)) for node in classes)
    found = NOTHING.union(*stored, *(interp.env[scope, name] for scope in bodies))
    return found if found or bodies or name in interp.assigned_attributes else None


def _with_bases(interp: Interpretation, cls: ast.ClassDef) -> list[ast.ClassDef]:
    return [cls, *(base.node for base in interp.bases(cls) if isinstance(base, Class))]


def _of_batch_value(interp: Interpretation, owner: FromBatch, name: str, node: ast.expr) -> Values:
    if name in {"data", "T", "mT", "grad", "H", "shape", "real"}:
        found = tensors.Operation(name, node).on(owner)
        return frozenset({found}) if found is not None else UNKNOWN
    if name in {"device", "dtype", "ndim", "is_cuda", "requires_grad", "grad_fn"}:
        return UNKNOWN
    if name == "loss":  # a model output that carries its own loss: its reduction is not known
        return frozenset({tensors.other(owner, node)})
    if owner.kind == "batch":
        return frozenset({Member(owner, name), FromBatch("rows", owner.loader, owner.origins, owner.host)})
    if owner.kind == "other" and not interp.is_called(node):
        # `scores.topk(3).values`, the `mean` of a distribution
        return frozenset({Member(owner, name), owner})
    return frozenset({Member(owner, name)})


def by_name(interp: Interpretation, owner: Value, name: ast.expr, node: ast.expr) -> Values:
    """What `getattr(owner, name)` may be: one of the attributes that `name` may name, or any."""
    known = interp.constants.known(name)
    if known:
        return frozenset(v for one in known for v in attribute(interp, owner, str(one), node))
    return _any_of(interp, owner) if isinstance(owner, Instance) else by_unknown_name(interp, owner)


def _any_of(interp: Interpretation, owner: Instance) -> Values:
    """The methods of an object, and what it keeps of a batch."""
    if interp.is_module(owner):
        return UNKNOWN
    classes = _with_bases(interp, owner.cls)
    names = [s.name for c in classes for s in c.body if isinstance(s, ast.FunctionDef)]
    methods = {v for name in names if not name.startswith("__") for v in _of_instance(interp, owner, name)}
    held = {v for c in classes for key in interp.heap.keys_of(c) for v in interp.heap[key]}
    return frozenset(methods) | {v for v in held if isinstance(v, FromBatch)} | UNKNOWN


def by_unknown_name(interp: Interpretation, owner: Value) -> Values:
    """What `getattr(owner, name)`, or `owner.__dict__[name]`, may be when the name is chosen at run time."""
    if not isinstance(owner, Symbol):
        return UNKNOWN
    if not owner.path.startswith(LOCAL):
        return frozenset({Symbol(f"{owner.path}.{api.CHOSEN}")})
    region = interp.links.region(owner.path.removeprefix(LOCAL))
    if region is None:
        return UNKNOWN
    scope = interp.table.scopes[region]
    bound = (value for name in sorted(scope.names) for value in interp.env[scope, name])
    return frozenset(value for value in bound if isinstance(value, Function | Class)) or UNKNOWN


def of_module(interp: Interpretation, path: str, name: str) -> Values:
    """The attribute `name` of a linked module: what it binds, or a module of its package."""
    region = interp.links.region(path)
    if region is not None and name in interp.table.scopes[region].names:
        return frozenset(interp.env[interp.table.scopes[region], name])
    inner = interp.links.child(path, name)
    return UNKNOWN if inner is None else frozenset({Symbol(LOCAL + inner)})
