"""The nodes of a tree by kind, its calls and its names, shared by several passes."""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cached_property

from crosstrain_migrate.syntax.nodes import place_of
from crosstrain_migrate.syntax.walks import walk

Kinds = tuple[type[ast.AST], ...]


class Index:
    """The nodes of a tree that no longer changes."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._of_kinds: dict[Kinds, list[ast.AST]] = {}

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node, breadth first; contexts and operators are not among them."""
        return tuple(walk(self._tree))

    def each(self, kinds: Kinds) -> list[ast.AST]:
        """The nodes of some kinds, in the order of `nodes`."""
        found = self._of_kinds.get(kinds)
        if found is None:
            parts = [held for own, held in self._by_class.items() if issubclass(own, kinds)]
            if len(parts) > 1:
                places = self._places
                found = sorted((node for held in parts for node in held), key=places.__getitem__)
            else:
                found = parts[0] if parts else []
            self._of_kinds[kinds] = found
        return found

    @cached_property
    def _by_class(self) -> dict[type[ast.AST], list[ast.AST]]:
        found: dict[type[ast.AST], list[ast.AST]] = defaultdict(list)
        for node in self.nodes:
            found[node.__class__].append(node)
        return found

    @cached_property
    def _places(self) -> dict[ast.AST, int]:
        return {node: place for place, node in enumerate(self.nodes)}

    @cached_property
    def calls(self) -> list[ast.Call]:
        """In the order of the text."""
        return sorted((n for n in self.each((ast.Call,)) if isinstance(n, ast.Call)), key=place_of)

    @cached_property
    def method_calls(self) -> dict[str, list[ast.Call]]:
        """The calls of attributes, by their names."""
        found: dict[str, list[ast.Call]] = defaultdict(list)
        for call in self.calls:
            if isinstance(call.func, ast.Attribute):
                found[call.func.attr].append(call)
        return found

    @cached_property
    def names(self) -> dict[str, list[ast.Name]]:
        """Every place that mentions a variable, by its name, in the order of `nodes`."""
        found: dict[str, list[ast.Name]] = defaultdict(list)
        for node in self.each((ast.Name,)):
            if isinstance(node, ast.Name):
                found[node.id].append(node)
        return found
