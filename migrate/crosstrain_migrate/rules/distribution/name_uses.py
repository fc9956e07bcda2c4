"""The names that a text reads, by function and by file, and the attributes."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cached_property

from crosstrain_migrate.rules.side_effects import same_code
from crosstrain_migrate.syntax.program import modules_of, path_of
from crosstrain_migrate.syntax.walks import children, statements


class Uses:
    """Which names each function (by its file and path) and each file reads, and all attributes the script reads."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self.by_scope: dict[str, set[str]] = {"": set()}
        self.by_file: dict[str, set[str]] = {}
        self.attributes: set[str] = set()
        self.read_in: dict[str, set[str]] = {}  # a name: the functions that read it themselves
        for module in modules_of(tree):
            own = self.by_file[path_of(module)] = set()
            self._visit(module, path_of(module), [self.by_scope[""], own])

    @cached_property
    def assignments(self) -> Counter[str]:
        """The number of times that each assignment occurs, by its text."""
        return Counter(ast.unparse(n) for n in statements(self._tree) if isinstance(n, ast.Assign))

    @cached_property
    def _equal_branches(self) -> set[str]:
        branches = (n for n in statements(self._tree) if isinstance(n, ast.If))
        return {ast.dump(n) for n in branches if n.orelse and same_code(n.body, n.orelse)}

    def has_same_branches(self, node: ast.If) -> bool:
        """Whether the author wrote two equal branches."""
        return ast.dump(node) in self._equal_branches

    def _visit(self, node: ast.AST, path: str, around: list[set[str]]) -> None:
        for child in children(node):
            if isinstance(child, ast.Name):
                if isinstance(child.ctx, ast.Load):
                    for names in around:
                        names.add(child.id)
                    self.read_in.setdefault(child.id, set()).add(path)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{path}.{child.name}"
                self._visit(child, inner, [*around, self.by_scope.setdefault(inner, set())])
            elif not isinstance(child, ast.Constant):
                if isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Load):
                    self.attributes.add(child.attr)
                self._visit(child, path, around)
