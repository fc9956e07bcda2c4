"""What a loop binds its target to, and which loaders it iterates."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TYPE_CHECKING

from . import torch_api as api
from .looks import looked_at
from .memory import ANY
from .values import UNKNOWN, External, Generator, Instance, Iterator, Sequence, Shard, Value, Values

if TYPE_CHECKING:
    from .infer import Interpreter


def iterate(interp: Interpreter, values: Values, node: ast.AST) -> Values:
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
            loader = looked_at(node) if node in interp.looks else value
            interp.merge(interp.iterations.cell(node), {loader})
            found.add(Shard("batch", loader))
        elif isinstance(value, Sequence):
            found |= interp.element(value)
        elif isinstance(value, Generator):
            yielded = frozenset(interp.heap[value.site, ANY])
            interp.merge(interp.iterations.cell(node), interp.loaders_of(yielded))
            found |= yielded
        elif isinstance(value, Shard) and value.kind == "batch":
            found.add(replace(value, kind="rows"))
        elif isinstance(value, Shard):
            found.add(replace(value, kind="other", origins=value.origins | {node}))
        elif isinstance(value, Instance):
            found |= _over_instance(interp, value, node)
        elif isinstance(value, External) and interp.is_module(value):
            found.add(External(api.SUBMODULE, value.site))
        else:
            found |= interp.element(value)
    return frozenset(found)


def _over_instance(interp: Interpreter, value: Instance, node: ast.AST) -> Values:
    method = interp.method(value.cls, "__iter__")
    return frozenset(interp.returns[method]) if method is not None else UNKNOWN
