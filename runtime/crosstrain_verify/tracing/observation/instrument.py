"""Instruments source code so that its expressions report their values.

Each expression that may give an object of the training is wrapped in a call that returns its value unchanged. This
changes the syntax tree of every file of the project when it is compiled. The files themselves stay as they are, so
tracebacks and `inspect.getsource` show the author's lines.
"""

from __future__ import annotations

import ast
import builtins
import importlib.machinery
import types
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from crosstrain_verify.records.observations import Place

SEEN = "__crosstrain_seen__"  # a name in builtins: (number of the place, value) -> the value
_WRAPPED = ast.Call | ast.Attribute | ast.Subscript | ast.Name | ast.BinOp | ast.Compare
# Fields with nodes that no run evaluates, or in which no call can stand, such as annotations and patterns.
_LEFT_OUT = frozenset({"annotation", "returns", "decorator_list", "bases", "pattern", "type_params"})


class Instrument:
    """Compiles the files below ``folder`` so that they report their values. places: of all files, by number."""

    def __init__(self, folder: Path) -> None:
        self.places: list[Place] = []
        self._folder = folder

    def install(self, seen: Any) -> None:
        """Instrument the modules of the folder that are imported from now on; they call `seen` with each value."""
        vars(builtins)[SEEN] = seen
        loader: Any = importlib.machinery.SourceFileLoader
        real = loader.get_code

        def get_code(own: Any, name: str) -> types.CodeType | None:
            path = own.get_filename(name)
            if not self.covers(path):
                code: types.CodeType | None = real(own, name)
                return code
            return self.compiled(own.get_data(path), path)

        loader.get_code = get_code

    def covers(self, path: str) -> bool:
        """Whether a file belongs to the project, and not to an installed library."""
        return Path(path).is_relative_to(self._folder) and "site-packages" not in path

    def compiled(self, source: bytes | str, filename: str) -> types.CodeType:
        """The instrumented code of a file, or of a notebook's cell. Raises what `compile` raises."""
        tree = ast.parse(source, filename)
        _Wrapper(filename, self.places, _imported(tree)).visit(tree)
        return compile(ast.fix_missing_locations(tree), filename, "exec", dont_inherit=True)


def _imported(tree: ast.Module) -> frozenset[str]:
    """The names that only imports bind: their meaning is known without a run."""
    imported: set[str] = set()
    bound: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {alias.asname or alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return frozenset(imported - bound)


class _Wrapper(ast.NodeTransformer):
    """Wraps every expression of one file, the inner ones first."""

    def __init__(self, filename: str, places: list[Place], imported: frozenset[str]) -> None:
        self._filename = filename
        self._places = places
        self._imported = imported
        self._parameters: list[frozenset[str]] = []

    def visit_FunctionDef(self, node: Any) -> ast.AST:
        self._parameters.append(frozenset(_parameters(node.args)))
        found = self.generic_visit(node)
        self._parameters.pop()
        return found

    visit_AsyncFunctionDef = visit_FunctionDef
    visit_Lambda = visit_FunctionDef

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
        if isinstance(getattr(node, "ctx", None), ast.Store | ast.Del) or self._is_known(node):
            return cast(ast.AST, node)
        parameter = isinstance(node, ast.Name) and any(node.id in names for names in self._parameters)
        at = (node.lineno, node.col_offset, node.end_lineno, node.end_col_offset)
        self._places.append(Place(self._filename, at, parameter))
        number = ast.Constant(len(self._places) - 1)
        call = ast.Call(ast.Name(SEEN, ast.Load()), [number, node], [])
        return ast.copy_location(call, node)

    def _is_known(self, node: ast.AST) -> bool:
        """Whether an expression is a builtin or comes from an import, such as `torch.nn.Linear`, `F` or `print`."""
        while isinstance(node, ast.Attribute):
            node = node.value
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == SEEN:
            return False
        return isinstance(node, ast.Name) and (node.id in self._imported or hasattr(builtins, node.id))


def _parameters(arguments: ast.arguments) -> Iterable[str]:
    for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield one.arg
    for rest in (arguments.vararg, arguments.kwarg):
        if rest is not None:
            yield rest.arg
