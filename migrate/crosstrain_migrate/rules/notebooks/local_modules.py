"""The functions and classes that cells import from local modules."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import PurePosixPath

from crosstrain_migrate.syntax.bindings import bound_name

from .statement_forms import names_in

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
Module = tuple[str, str]  # its path, relative to the notebook, and its text


def outside(modules: Iterable[Module], cells: ast.Module) -> dict[str, list[Definition]]:
    """What `cells` import from local modules: each imported name with its functions and classes, and all they use."""
    trees = {path: ast.parse(text) for path, text in modules}
    known: dict[str, list[Definition]] = {}
    for node in (node for tree in trees.values() for node in tree.body if isinstance(node, Definition)):
        known.setdefault(node.name, []).append(node)
    found: dict[str, list[Definition]] = {}
    for statement in ast.walk(cells):
        if isinstance(statement, ast.ImportFrom):
            found |= {bound_name(alias): known.get(alias.name, []) for alias in statement.names}
        elif isinstance(statement, ast.Import):
            for alias in statement.names:
                stem = alias.name.rsplit(".", 1)[-1]
                inside = [n for path, tree in trees.items() if stem in _names(path) for n in tree.body]
                found[bound_name(alias)] = [n for n in inside if isinstance(n, Definition)]
    return {name: _with_used(nodes, known) for name, nodes in found.items() if nodes}


def _with_used(nodes: list[Definition], known: dict[str, list[Definition]]) -> list[Definition]:
    """The definitions, and those of all modules that they name: more than they use, never less."""
    found = list(nodes)
    for node in found:  # which grows meanwhile
        named = names_in(node) | {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        found += [d for name in sorted(named) for d in known.get(name, []) if d not in found]
    return found


def _names(path: str) -> set[str]:
    """What a module's file can be imported as: its stem, or its folder for a package."""
    pure = PurePosixPath(path)
    return {pure.parent.name} if pure.name == "__init__.py" else {pure.stem}
