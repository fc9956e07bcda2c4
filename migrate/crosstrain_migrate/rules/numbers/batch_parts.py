"""The parts of a batch, under the names that the loop over batches gives them."""

from __future__ import annotations

import ast

from crosstrain_migrate.facts.facts import Facts
from crosstrain_migrate.facts.values import FromBatch, Value
from crosstrain_migrate.syntax.walks import walk

from .batch_values import batch_values


class BatchParts:
    def __init__(self, facts: Facts) -> None:
        self.facts = facts

    def cheaper(self, operand: ast.expr) -> str | None:
        """The last leaf of the batch, which has as many rows and is usually the smallest (the labels)."""
        if not isinstance(operand, ast.Name):
            return None
        loaders = {batch_value.loader for batch_value in batch_values(self.facts, operand)}
        if any(self._has_collate(loader) for loader in loaders):
            return None
        leaves = [
            name
            for name in self.around(operand)
            if (name.strip("_") or name == operand.id) and self._keeps_rows(name, operand, loaders)
        ]
        if operand.id not in leaves or len(leaves) < 2:
            return None
        return leaves[-1]

    def _region(self, node: ast.AST) -> ast.AST | None:
        """The loop over batches around `node`, or else its function."""
        return self.facts.batch_loop_around(node) or self.facts.enclosing_function(node)

    def around(self, node: ast.AST) -> list[str]:
        """The names that the loop or function around `node` gives the parts of a batch, at once or in a statement."""
        region = self._region(node)
        targets = [region.target] if isinstance(region, ast.For | ast.AsyncFor) else []
        targets += [
            target
            for statement in getattr(region, "body", ())
            if isinstance(statement, ast.Assign) and self._is_whole_batch(statement)
            for target in statement.targets
            if isinstance(target, ast.Tuple)
        ]
        names = (n for target in targets for n in walk(target))
        return [n.id for n in names if isinstance(n, ast.Name) and self._is_leaf(n)]

    def _keeps_rows(self, name: str, operand: ast.expr, loaders: set[Value]) -> bool:
        """Whether whatever a leaf is bound to around `operand` has the rows of one batch of these loaders."""
        region = self._region(operand)
        assert region is not None  # it is where the leaf was found
        bound = [
            n
            for n in walk(region)
            if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
        ]
        held = [batch_values(self.facts, n) for n in bound]
        return all(found and all(s.kind == "rows" and s.loader in loaders for s in found) for found in held)

    def _is_whole_batch(self, statement: ast.stmt) -> bool:
        """Whether a statement binds what the loader gave, and not the several outputs of a call on rows (`x.max(1)`)."""
        value = statement.value if isinstance(statement, ast.Assign) else None
        found = batch_values(self.facts, value) if value is not None else []
        if isinstance(value, ast.Call):
            receiver = [value.func.value] if isinstance(value.func, ast.Attribute) else []
            found += [s for operand in (*receiver, *value.args) for s in batch_values(self.facts, operand)]
        return bool(found) and all(s.kind == "batch" for s in found)

    @staticmethod
    def _has_collate(loader: Value) -> bool:
        """A collate function of the script's own may return leaves of different lengths."""
        site = getattr(loader, "site", None)
        return not isinstance(site, ast.Call) or any(k.arg == "collate_fn" for k in site.keywords)

    def _is_leaf(self, name: ast.Name) -> bool:
        return any(isinstance(s, FromBatch) and s.kind == "rows" for s in self.facts.of(name))
