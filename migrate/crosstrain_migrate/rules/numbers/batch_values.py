"""The values from batches among the values of an expression."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import FromBatch, Sequence, Value, Values


def batch_values(facts: Facts, node: ast.AST) -> list[FromBatch]:
    return [v for v in facts.of(node) if isinstance(v, FromBatch)]


def kinds_of(facts: Facts, node: ast.AST) -> set[str]:
    """The kinds of values from batches that a node may have: `rows`, a `mean` over them, a `count` (see FromBatch)."""
    return {s.kind for s in batch_values(facts, node)}


def local_batch_values(
    facts: Facts, node: ast.AST, loaders: set[Value], host: bool = False
) -> list[FromBatch]:
    """The values from batches of `loaders` that `node` may have: tensors, or with `host` Python numbers read from them."""
    return [
        s for s in batch_values(facts, node) if s.loader in loaders and s.host == host and s.kind != "shape"
    ]


def held_batch_values(
    facts: Facts, values: Values, loaders: set[Value], host: bool = False
) -> list[FromBatch]:
    """The values from batches that the containers among some values hold."""
    held = (e for v in values if isinstance(v, Sequence) for e in facts.interp.element(v))
    return [e for e in held if isinstance(e, FromBatch) and e.loader in loaders and e.host == host]
