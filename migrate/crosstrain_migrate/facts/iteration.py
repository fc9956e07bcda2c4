"""What a loop binds its target to, and which loaders it iterates."""

from __future__ import annotations

import ast
from dataclasses import replace

from . import torch_api as api
from .arguments import arguments_of
from .interpretation import Interpretation
from .memory import ANY
from .previews import previewed_at
from .values import UNKNOWN, External, FromBatch, Generator, Instance, Iterator, Sequence, Value, Values


def iterate(interp: Interpretation, values: Values, node: ast.AST) -> Values:
    """What a loop over `values` binds its target to; remembers which loaders `node` iterates."""
    found: set[Value] = set()
    for value in values:
        if isinstance(value, Iterator):
            inner = iterate(interp, frozenset({value.of}), node)
            if value.counted:
                pair = Sequence(value.site)
                interp.store(value.site, 0, UNKNOWN)
                interp.store(value.site, 1, inner)
                found.add(pair)
            else:
                found |= inner
        elif interp.is_loader(value):
            loader = previewed_at(node) if node in interp.previews else value
            interp.merge(interp.iterations.cell(node), {loader})
            found.add(_first_batch_value(loader, node))
        elif isinstance(value, Sequence):
            found |= interp.element(value)
        elif isinstance(value, Generator):
            yielded = frozenset(interp.heap[value.site, ANY])
            interp.merge(interp.iterations.cell(node), interp.loaders_of(yielded))
            found |= yielded
        elif isinstance(value, FromBatch) and value.kind == "batch":
            found.add(replace(value, kind="rows"))
        elif isinstance(value, FromBatch):
            found.add(replace(value, kind="other", origins=value.origins | {node}))
        elif isinstance(value, Instance):
            found |= _over_instance(interp, value, node)
        elif isinstance(value, External) and interp.is_module(value):
            found.add(External(api.SUBMODULE, value.site))
        else:
            found |= interp.element(value)
    return frozenset(found)


def _first_batch_value(loader: Value, node: ast.AST) -> FromBatch:
    """A batch; of a loader of subgraphs, whose tensors have rows of nodes and edges, only that it is of the share."""
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
    found: set[Value] = set()
    for returned in frozenset(interp.returns[method]):
        following = interp.method(returned.cls, "__next__") if isinstance(returned, Instance) else None
        if following is not None:
            found |= _of_its_own(interp, value, frozenset(interp.returns[following]), node)
        elif isinstance(returned, Iterator | Generator):
            found |= _of_its_own(interp, value, iterate(interp, frozenset({returned}), node), node)
        else:
            found.add(returned)
    return frozenset(found)


def _of_its_own(interp: Interpretation, wrapper: Instance, yielded: Values, node: ast.AST) -> Values:
    """What one object of a class yields of what all of them do: batches of the loaders that it was made of."""
    given = arguments_of(wrapper.site) if isinstance(wrapper.site, ast.Call) else []
    own = {v for argument in given for v in interp.of(argument) if interp.is_loader(v)}
    found = frozenset(v for v in yielded if not own or not isinstance(v, FromBatch) or v.loader in own)
    interp.merge(interp.iterations.cell(node), interp.loaders_of(found))
    return found
