"""The functions and classes that cells import from local modules."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import PurePosixPath

from .statement_forms import names_in

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Module = tuple[str, str]  # its path, relative to the notebook, and its text


class Outside:
    """What `cells` import from local modules. definitions: each imported name with its functions, and all they use."""

    def __init__(self, modules: Iterable[Module], cells: ast.Module) -> None:
        trees = {path: ast.parse(text) for path, text in modules}
        self._all: dict[str, list[Definition]] = {}
        for tree in trees.values():
            for node in tree.body:
                if isinstance(node, Definition):
                    self._all.setdefault(node.name, []).append(node)
        self.definitions: dict[str, list[Definition]] = {}
        for statement in ast.walk(cells):
            if isinstance(statement, ast.ImportFrom):
                for alias in statement.names:
                    self._bind(alias.asname or alias.name, self._all.get(alias.name, []))
            elif isinstance(statement, ast.Import):
                for alias in statement.names:
                    stem = alias.name.rsplit(".", 1)[-1]
                    inside = [n for path, tree in trees.items() if stem in _names(path) for n in tree.body]
                    name = alias.asname or alias.name.split(".")[0]
                    self._bind(name, [n for n in inside if isinstance(n, Definition)])

    def _bind(self, name: str, nodes: list[Definition]) -> None:
        if nodes:
            self.definitions[name] = self._closure(nodes)

    def _closure(self, nodes: list[Definition]) -> list[Definition]:
        """The definitions, and those of all modules that they name: more than they use, never less."""
        found = list(nodes)
        for node in found:
            named = names_in(node) | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
            found += [d for name in sorted(named) for d in self._all.get(name, []) if d not in found]
        return found


def _names(path: str) -> set[str]:
    """What a module's file can be imported as: its stem, or its folder for a package."""
    pure = PurePosixPath(path)
    return {pure.parent.name} if pure.name == "__init__.py" else {pure.stem}
