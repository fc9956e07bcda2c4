"""Instruments source code so that its expressions report their values.

Each expression that may stand for a number is wrapped in a call that returns its value unchanged. This changes the syntax
tree of every file of the project when it is compiled. The files themselves stay as they are, so tracebacks and
`inspect.getsource` show the author's lines.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import types
from pathlib import Path
from typing import Any, cast

SEEN = "__crosstrain_seen__"  # a name in builtins: (a place as a tuple, value) -> the value
_WRAPPED = ast.Call | ast.Attribute | ast.Subscript | ast.Name | ast.BinOp
# Fields with nodes that no run evaluates, or in which no call can stand, such as annotations and patterns.
_LEFT_OUT = frozenset({"annotation", "returns", "decorator_list", "bases", "pattern", "type_params"})


class Instrument:
    """Compiles the files below ``folder`` so that they report their values. files: those that were compiled."""

    def __init__(self, folder: Path) -> None:
        self.files: set[str] = set()
        self._folder = folder

    def install(self, seen: Any) -> None:
        """Instrument the modules of the folder that are imported from now on; they call `seen` with each value."""
        vars(builtins)[SEEN] = seen
        loader: Any = importlib.machinery.SourceFileLoader
        real = loader.get_code

        def get_code(own: Any, name: str) -> types.CodeType | None:
            path = own.get_filename(name)
            if Path(path).is_relative_to(self._folder) and "site-packages" not in path:
                return self.compiled(own.get_data(path), path)
            code: types.CodeType | None = real(own, name)
            return code

        loader.get_code = get_code

    def compiled(self, source: bytes | str, filename: str) -> types.CodeType:
        """The instrumented code of a file, or of a notebook's cell. Raises what `compile` raises."""
        self.files.add(filename)
        tree = _Wrapper(filename).visit(ast.parse(source, filename))
        return compile(ast.fix_missing_locations(tree), filename, "exec", dont_inherit=True)


class _Wrapper(ast.NodeTransformer):
    """Wraps every expression of one file, the inner ones first."""

    def __init__(self, filename: str) -> None:
        self._filename = filename

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for name, value in ast.iter_fields(node):
            if name in _LEFT_OUT:
                continue
            if isinstance(value, list):
                value[:] = [self.visit(part) if isinstance(part, ast.AST) else part for part in value]
            elif isinstance(value, ast.AST):
                setattr(node, name, self.visit(value))
        return self._wrapped(node) if isinstance(node, _WRAPPED) else node

    def _wrapped(self, node: Any) -> ast.AST:
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del):
            return cast(ast.AST, node)
        place: Any = (self._filename, node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        call = ast.Call(ast.Name(SEEN, ast.Load()), [ast.Constant(place), node], [])
        return ast.copy_location(call, node)
