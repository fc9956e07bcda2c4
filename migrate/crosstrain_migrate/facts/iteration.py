"""What a loop binds its target to, and which loaders it iterates."""

from __future__ import annotations

import ast
from dataclasses import replace

from . import torch_api as api
from .arguments import arguments_of
from .interpretation import Interpretation
from .memory import ANY
from .previews import previewed_at
from .values import (
    NOTHING,
    UNKNOWN,
    External,
    FromBatch,
    Generator,
    Instance,
    Iterator,
    Sequence,
    Value,
    Values,
)


def iterate(interp: Interpretation, values: Values, node: ast.AST) -> Values:
    """What a loop over `values` binds its target to; remembers which loaders `node` iterates."""
    return NOTHING.union(*(_items(interp, value, node) for value in values))


def _items(interp: Interpretation, value: Value, node: ast.AST) -> Values:
    if isinstance(value, Iterator):
        inner = _items(interp, value.of, node)
        if not value.counted:
            return inner
        interp.store(value.site, 0, UNKNOWN)
        interp.store(value.site, 1, inner)
        return frozenset({Sequence(value.site)})
    if interp.is_loader(value):
        loader = previewed_at(node) if node in interp.previews else value
        interp.merge(interp.iterations.cell(node), {loader})
        return frozenset({_batch_of(loader, node)})
    if isinstance(value, Generator):
        yielded = frozenset(interp.heap[value.site, ANY])
        interp.merge(interp.iterations.cell(node), interp.loaders_of(yielded))
        return yielded
    if isinstance(value, FromBatch):
        rows = value.kind == "batch"
        origins = value.origins if rows else value.origins | {node}
        return frozenset({replace(value, kind="rows" if rows else "other", origins=origins)})
    if isinstance(value, Instance):
        return _over_instance(interp, value, node)
    if isinstance(value, External) and interp.is_module(value):
        return frozenset({External(api.SUBMODULE, value.site)})
    return interp.element(value)


def _batch_of(loader: Value, node: ast.AST) -> FromBatch:
    """A batch. That of a loader of subgraphs has rows of nodes and edges: it counts as some function of the share."""
    path = loader.path if isinstance(loader, External) else ""
    if path.startswith(api.GRAPH_LOADERS) and api.last(path) not in api.LOADERS_OF_GRAPHS:
        return FromBatch("other", loader, frozenset({node}))
    return FromBatch("batch", loader)


def _over_instance(interp: Interpretation, value: Instance, node: ast.AST) -> Values:
    """What an object of the script's own yields: by a generator, by what its `__iter__` returns, or by `__next__`."""
    method = interp.method(value.cls, "__iter__")
    if method is None:
        return UNKNOWN
    interp.iterated.add(method)
    if method in interp.generators:
        return _of_its_own(interp, value, frozenset(interp.yields[method]), node)

    def items(iterator: Value) -> Values:
        following = interp.method(iterator.cls, "__next__") if isinstance(iterator, Instance) else None
        if following is not None:
            return _of_its_own(interp, value, frozenset(interp.returns[following]), node)
        if isinstance(iterator, Iterator | Generator):
            return _of_its_own(interp, value, _items(interp, iterator, node), node)
        return frozenset({iterator})

    return NOTHING.union(*map(items, frozenset(interp.returns[method])))


def _of_its_own(interp: Interpretation, wrapper: Instance, yielded: Values, node: ast.AST) -> Values:
    """Of what all objects of a class yield, what this one does: batches of the loaders that its constructor was given."""
    given = arguments_of(wrapper.site) if isinstance(wrapper.site, ast.Call) else []
    own = {v for argument in given for v in interp.of(argument) if interp.is_loader(v)}
    found = frozenset(v for v in yielded if not own or not isinstance(v, FromBatch) or v.loader in own)
    interp.merge(interp.iterations.cell(node), interp.loaders_of(found))
    return found
