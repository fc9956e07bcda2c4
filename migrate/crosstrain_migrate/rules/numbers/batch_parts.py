"""The parts of a batch, under the names that the loop over batches gives them."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import Value

from .batch_values import batch_values, kinds_of
from .bindings import names_in, option


def smallest_part(facts: Facts, operand: ast.expr) -> str | None:
    """The last part of the batch that `operand` is one of: it has as many rows and is usually the smallest (the labels).

    None where a collate function of the script's own may return parts of different lengths.
    """
    if not isinstance(operand, ast.Name):
        return None
    loaders = {value.loader for value in batch_values(facts, operand)}
    if any(_has_collate(loader) for loader in loaders):
        return None
    parts = [
        name
        for name in parts_around(facts, operand)
        if (name.strip("_") or name == operand.id) and _keeps_rows(facts, name, operand, loaders)
    ]
    return parts[-1] if operand.id in parts and len(parts) > 1 else None


def region_of(facts: Facts, node: ast.AST) -> ast.AST | None:
    """The loop over batches around `node`, or else its function."""
    return facts.batch_loop_around(node) or facts.enclosing_function(node)


def parts_around(facts: Facts, node: ast.AST) -> list[str]:
    """The names that the loop or function around `node` gives the parts of a batch, at once or in a statement."""
    region = region_of(facts, node)
    targets = [region.target] if isinstance(region, ast.For | ast.AsyncFor) else []
    for statement in getattr(region, "body", ()):
        if isinstance(statement, ast.Assign) and _is_whole_batch(facts, statement.value):
            targets += [target for target in statement.targets if isinstance(target, ast.Tuple)]
    return [n.id for target in targets for n in names_in(target) if "rows" in kinds_of(facts, n)]


def _keeps_rows(facts: Facts, name: str, operand: ast.expr, loaders: set[Value]) -> bool:
    """Whether everything that a part's name is bound to around `operand` has the rows of one batch of these loaders."""
    region = region_of(facts, operand)
    assert region is not None  # it is where the part was found
    bound = [n for n in names_in(region) if n.id == name and isinstance(n.ctx, ast.Store)]
    held = [batch_values(facts, n) for n in bound]
    return all(found and all(s.kind == "rows" and s.loader in loaders for s in found) for found in held)


def _is_whole_batch(facts: Facts, value: ast.expr) -> bool:
    """Whether a value is what the loader gave, and not the several outputs of a call on rows (`x.max(1)`)."""
    kinds = kinds_of(facts, value)
    if isinstance(value, ast.Call):
        owner = value.func.value if isinstance(value.func, ast.Attribute) else value
        kinds = kinds.union(*(kinds_of(facts, operand) for operand in (owner, *value.args)))
    return kinds == {"batch"}


def _has_collate(loader: Value) -> bool:
    site = getattr(loader, "site", None)
    return not isinstance(site, ast.Call) or option(loader, "collate_fn") is not None
