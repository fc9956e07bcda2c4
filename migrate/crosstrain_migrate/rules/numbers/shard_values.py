"""The shards among the values of an expression."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Shard, Value


def shards(facts: Facts, node: ast.AST) -> list[Shard]:
    return [v for v in facts.of(node) if isinstance(v, Shard)]


def local_shards(facts: Facts, node: ast.AST, loaders: set[Value], host: bool = False) -> list[Shard]:
    """Shards of `loaders` that `node` may be: tensors, or with `host` the Python numbers read from them."""
    return [s for s in shards(facts, node) if s.loader in loaders and s.host == host and s.kind != "shape"]
