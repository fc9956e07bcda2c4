"""The generator functions of a script: to iterate over what they return is to draw from a stream."""

from __future__ import annotations

import ast
from collections import Counter

from crosstrain_migrate.syntax.scopes import ScopeTable


def generator_functions(tree: ast.Module, table: ScopeTable) -> frozenset[ast.AST]:
    """The functions that yield, except context managers."""
    yields = table.each(ast.Yield, ast.YieldFrom)
    functions = {next((a for a in table.ancestors(n) if a in table.scopes), tree) for n in yields}
    return frozenset(
        function
        for function in functions
        if not any("contextmanager" in ast.unparse(d) for d in getattr(function, "decorator_list", ()))
    )


def sole_streams(table: ScopeTable, generators: frozenset[ast.AST]) -> frozenset[ast.AST]:
    """The generator functions that are named in one place only, so that a loader which one makes serves one stream."""
    if not generators:
        return frozenset()
    named = Counter(node.id for node in table.each(ast.Name))
    named.update(node.attr for node in table.each(ast.Attribute))
    return frozenset(node for node in generators if named[getattr(node, "name", "")] == 1)
