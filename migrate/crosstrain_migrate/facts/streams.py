"""Which functions of a script yield: what iterates over their results draws from a stream."""

from __future__ import annotations

import ast
from collections import Counter

from crosstrain_migrate.syntax.scopes import ScopeTable


def generator_functions(tree: ast.Module, table: ScopeTable) -> frozenset[ast.AST]:
    """The functions that yield, but for context managers, whose calls are no streams of anything."""
    found = set()
    for node in table.each(ast.Yield, ast.YieldFrom):
        around = next((a for a in table.ancestors(node) if a in table.scopes), tree)
        decorators = " ".join(ast.unparse(d) for d in getattr(around, "decorator_list", ()))
        if "contextmanager" not in decorators:
            found.add(around)
    return frozenset(found)


def sole_streams(table: ScopeTable, generators: frozenset[ast.AST]) -> frozenset[ast.AST]:
    """The generator functions that are named in one place only: a loader that one makes serves one stream."""
    if not generators:
        return frozenset()
    named = Counter(node.id for node in table.each(ast.Name))
    named.update(node.attr for node in table.each(ast.Attribute))
    return frozenset(node for node in generators if named[getattr(node, "name", "")] == 1)
