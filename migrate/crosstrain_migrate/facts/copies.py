"""Containers that every call of a function makes anew: a place of its own for each call's."""

from __future__ import annotations

import ast

from crosstrain_migrate.syntax.scopes import ScopeTable

MAX_COPIES = 100  # of containers; training scripts have some ten


class Copies:
    """Stand-ins for the places where containers are made, one for each call that makes them."""

    def __init__(self) -> None:
        self._sites: dict[tuple[ast.AST, ast.AST], ast.AST] = {}
        # A function that calls itself would make copies of copies for ever.
        self._originals: dict[ast.AST, ast.AST] = {}

    def site(self, call: ast.Call, made: ast.AST, table: ScopeTable) -> ast.AST | None:
        """The stand-in for `made` in one call; None where a program has so many that telling them apart takes for ever."""
        made = self._originals.get(made, made)
        found = self._sites.get((call, made))
        if found is None and len(self._sites) >= MAX_COPIES:
            return None
        if found is None:
            found = self._sites[call, made] = ast.copy_location(_empty_like(made), call)
            self._originals[found] = made
            table.parents[found] = call  # it lives as long as what the call is part of
            table.of_node[found] = table.of_node[call]
        return found


def _empty_like(made: ast.AST) -> ast.expr:
    if isinstance(made, ast.Dict | ast.DictComp):
        return ast.Dict([], [])
    if isinstance(made, ast.List | ast.ListComp):
        return ast.List([], ast.Load())
    return ast.Tuple([], ast.Load())
