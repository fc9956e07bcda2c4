"""Imports that a conversion adds: where they go among those that the file has already."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import libcst as cst

_Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement
_EMPTY_MODULE = cst.Module([])  # writes nodes as code


def add_imports(module: cst.Module, codes: list[str]) -> cst.Module:
    """Adds `from package import name` lines to the imports around torch's, where a sorter would put them."""
    body = list(module.body)
    for code in _one_per_package(codes):
        if _has(body, code):
            continue
        fresh = cst.ensure_type(
            cst.parse_statement(code, config=module.config_for_parsing), cst.SimpleStatementLine
        )
        package = code.split()[1]
        of_library = code.startswith("import ") and package in sys.stdlib_module_names
        position, opens_block = (_place_in_library if of_library else _place)(
            body[: _first_use(body, code)], package
        )
        if opens_block:
            following = cst.ensure_type(body[position], cst.SimpleStatementLine)
            fresh = fresh.with_changes(leading_lines=following.leading_lines)
            body[position] = following.with_changes(leading_lines=[])
        body.insert(position, fresh)
    return module.with_changes(body=body)


def _one_per_package(codes: list[str]) -> list[str]:
    """One line for all that comes from one package: `from crosstrain import Accelerator, PartialState`."""
    names: dict[str, list[str]] = {}
    for code in codes:
        start, keyword, name = code.partition(" import ") if code.startswith("from ") else (code, "", "")
        names.setdefault(start + keyword, []).append(name)
    return [start + ", ".join(sorted(found)) for start, found in names.items()]


def _has(body: list[_Statement], code: str) -> bool:
    """Whether the file imports `code` already."""
    return any(code == _line_of(statement) or code in _plain_imports(statement) for statement in body)


def _import_in(statement: cst.CSTNode) -> cst.Import | cst.ImportFrom | None:
    first = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
    return first if isinstance(first, cst.Import | cst.ImportFrom) else None


def _line_of(statement: _Statement) -> str:
    """An import without the comments around it; empty for anything else."""
    found = _import_in(statement)
    alone = isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
    return _EMPTY_MODULE.code_for_node(found) if found is not None and alone else ""


def _plain_imports(statement: _Statement) -> list[str]:
    """`import os, sys` as `import os` and `import sys`."""
    found = _import_in(statement)
    names = found.names if isinstance(found, cst.Import) else ()
    return [f"import {alias.evaluated_name}" for alias in names if alias.asname is None]


def _imported_module(statement: cst.CSTNode) -> str | None:
    """The module of an import statement, "." for the package's own; None for anything else."""
    found = _import_in(statement)
    if found is None:
        return None
    module = found.names[0].name if isinstance(found, cst.Import) else found.module
    return _EMPTY_MODULE.code_for_node(module) if module is not None else "."


def _first_use(body: Sequence[cst.BaseStatement], code: str) -> int:
    """The first statement that runs with an imported name at the top level: a notebook's cells import as they go."""
    names = {name.strip() for name in code.partition("import ")[2].split(",")}
    for index, statement in enumerate(body):
        if not isinstance(statement, cst.FunctionDef | cst.ClassDef) and _mentions(statement, names):
            return index
    return len(body)


def _mentions(node: cst.CSTNode, names: set[str]) -> bool:
    if isinstance(node, cst.Name):
        return node.value in names
    return not isinstance(node, cst.FunctionDef | cst.Lambda) and any(
        _mentions(child, names) for child in node.children
    )


def _place_in_library(body: Sequence[cst.BaseStatement], package: str) -> tuple[int, bool]:
    """Where `import package` of the standard library goes: among its like, by name, or above all other imports."""
    plain = [
        (index, name)
        for index, statement in enumerate(body)
        if isinstance(_import_in(statement), cst.Import)
        if (name := _imported_module(statement) or "").split(".")[0] in sys.stdlib_module_names
    ]
    later = next((index for index, name in plain if name > package), None)
    if later is not None:
        return later, True
    if plain:
        return plain[-1][0] + 1, False
    imports = (i for i, s in enumerate(body) if _imported_module(s) not in (None, "__future__"))
    return next(imports, _behind_docstring(body)), True


def _place(body: Sequence[cst.BaseStatement], package: str) -> tuple[int, bool]:
    """(index, whether the statement there opens its block and must pass its leading lines on)."""
    modules = [_imported_module(statement) for statement in body]
    imports = [index for index, name in enumerate(modules) if name is not None]
    if not imports:
        return _behind_docstring(body), False
    torch_at = next((i for i in imports if (modules[i] or "").split(".")[0] == "torch"), imports[-1])
    start = end = torch_at
    while start - 1 in imports and not _opens_block(body[start]):
        start -= 1
    while end + 1 in imports and not _opens_block(body[end + 1]):
        end += 1
    for index in range(start, end + 1):
        name = modules[index] or ""
        if isinstance(_import_in(body[index]), cst.ImportFrom) and name > package and name != "__future__":
            leading = cst.ensure_type(body[index], cst.SimpleStatementLine).leading_lines
            return index, index == start and bool(leading)
    return end + 1, False


def _behind_docstring(body: Sequence[cst.BaseStatement]) -> int:
    return 1 if body and is_docstring(body[0]) else 0


def is_docstring(statement: cst.CSTNode) -> bool:
    return (
        isinstance(statement, cst.SimpleStatementLine)
        and isinstance(statement.body[0], cst.Expr)
        and isinstance(statement.body[0].value, cst.SimpleString | cst.ConcatenatedString)
    )


def _opens_block(statement: cst.BaseStatement) -> bool:
    """Whether a blank line stands above it."""
    lines = cst.ensure_type(statement, cst.SimpleStatementLine).leading_lines
    return any(line.comment is None for line in lines)
