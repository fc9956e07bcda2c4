"""Imports that a conversion adds: where they go among those that the file has already."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass

from .places import Places
from .program import tree_of
from .walks import children

_RUNTIMES = frozenset({"from crosstrain", "from accelerate"})
_NO_PART_OF_IT = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass
class _Line:
    """A statement of the file, with others that share its line; `above` is where the lines above it begin."""

    nodes: list[ast.stmt]
    above: int
    start: int
    end: int

    @property
    def imports(self) -> ast.Import | ast.ImportFrom | None:
        first = self.nodes[0]
        return first if isinstance(first, ast.Import | ast.ImportFrom) else None

    @property
    def module(self) -> str | None:
        """The module of an import statement, "." for the package's own; None for anything else."""
        found = self.imports
        if isinstance(found, ast.Import):
            return found.names[0].name
        return None if found is None else found.module or "."


def add_imports(text: str, codes: list[str]) -> str:
    """Adds `from package import name` lines to the imports around torch's, where a sorter would put them."""
    for code in _one_per_package(codes):
        text = _added(text, code)
    return text


def _added(text: str, code: str) -> str:
    lines = _lines(text)
    if (changed := _in_a_line(text, lines, code)) is not None:
        return changed
    package = code.split()[1]
    of_library = code.startswith("import ") and package in sys.stdlib_module_names
    body = lines[: _first_use(lines, code)]
    position, opens_block = (
        _place_in_library(text, body, package) if of_library else _place(text, body, package)
    )
    if position < len(lines):
        at = lines[position].start if opens_block else lines[position].above
        return f"{text[:at]}{code}\n{text[at:]}"
    at = lines[-1].end if lines else len(text)
    return f"{text[:at]}\n{code}{text[at:]}" if lines else f"{text}{code}\n"


def _lines(text: str) -> list[_Line]:
    places = Places(text)
    found: list[_Line] = []
    for node in tree_of(text).body:
        first, last = places.statement(node)
        start = text.rfind("\n", 0, first) + 1
        stop = text.find("\n", last)
        end = len(text) if stop < 0 else stop
        if found and start < found[-1].end:
            found[-1].nodes.append(node)
            found[-1].end = end
        else:
            found.append(_Line([node], found[-1].end + 1 if found else start, start, end))
    return found


def _one_per_package(codes: list[str]) -> list[str]:
    """One line for all that comes from one package: `from crosstrain import Accelerator, PartialState`."""
    names: dict[str, list[str]] = {}
    for code in codes:
        start, keyword, name = code.partition(" import ") if code.startswith("from ") else (code, "", "")
        names.setdefault(start + keyword, []).append(name)
    return [start + ", ".join(sorted(found)) for start, found in names.items()]


def _in_a_line(text: str, lines: list[_Line], code: str) -> str | None:
    """The text, where the file imports `code` already, or can get it in the line that an earlier conversion has added."""
    places = Places(text)
    written = [
        places.source(line.nodes[0]) if line.imports is not None and len(line.nodes) == 1 else ""
        for line in lines
    ]
    if code in written or any(code in _plain_imports(line) for line in lines):
        return text
    start, keyword, names = code.partition(" import ")
    number = next((n for n, line in enumerate(written) if line.startswith(start + keyword)), None)
    if not keyword or number is None or start not in _RUNTIMES:
        return None
    there = [name.strip() for name in written[number].removeprefix(start + keyword).split(",")]
    if not all(name.isidentifier() for name in there):
        return None
    joined = ", ".join(sorted({*there, *(name.strip() for name in names.split(","))}))
    first, last = places.span(lines[number].nodes[0])
    return text[:first] + start + keyword + joined + text[last:]


def _plain_imports(line: _Line) -> list[str]:
    """`import os, sys` as `import os` and `import sys`."""
    names = line.imports.names if isinstance(line.imports, ast.Import) else ()
    return [f"import {alias.name}" for alias in names if alias.asname is None]


def _first_use(lines: list[_Line], code: str) -> int:
    """The first statement that runs with an imported name at the top level: a notebook's cells import as they go."""
    names = {name.strip() for name in code.partition("import ")[2].split(",")}
    for index, line in enumerate(lines):
        own = (node for node in line.nodes if not isinstance(node, ast.ClassDef))
        if any(_mentions(node, names) for node in own):
            return index
    return len(lines)


def _mentions(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, _NO_PART_OF_IT):
        return False
    if isinstance(node, ast.Name | ast.Attribute | ast.alias):
        own = (
            node.id
            if isinstance(node, ast.Name)
            else node.attr
            if isinstance(node, ast.Attribute)
            else node.name
        )
        if own in names:
            return True
    return any(_mentions(child, names) for child in children(node))


def _place_in_library(text: str, body: list[_Line], package: str) -> tuple[int, bool]:
    """Where `import package` of the standard library goes: among its like, by name, or above all other imports."""
    plain = [
        (index, name)
        for index, line in enumerate(body)
        if isinstance(line.imports, ast.Import)
        if (name := (line.module or "").split(".")[0]) in sys.stdlib_module_names
    ]
    later = next((index for index, name in plain if name > package), None)
    if later is not None:
        return later, True
    if plain:
        return plain[-1][0] + 1, False
    imports = (index for index, line in enumerate(body) if line.module not in (None, "__future__"))
    return next(imports, _behind_docstring(body)), True


def _place(text: str, body: list[_Line], package: str) -> tuple[int, bool]:
    """(index, whether the statement there opens its block and must pass its leading lines on)."""
    imports = [index for index, line in enumerate(body) if line.module is not None]
    if not imports:
        return _behind_docstring(body), False
    modules = [line.module or "" for line in body]
    torch_at = next((index for index in imports if modules[index].split(".")[0] == "torch"), imports[-1])
    start = end = torch_at
    while start - 1 in imports and not _opens_block(text, body[start]):
        start -= 1
    while end + 1 in imports and not _opens_block(text, body[end + 1]):
        end += 1
    for index in range(start, end + 1):
        line, name = body[index], modules[index]
        if isinstance(line.imports, ast.ImportFrom) and name > package and name != "__future__":
            return index, index == start and line.above < line.start
    return end + 1, False


def _behind_docstring(body: list[_Line]) -> int:
    first = body[0].nodes[0] if body else None
    return int(
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant | ast.JoinedStr)
        and isinstance(getattr(first.value, "value", ""), str)
    )


def _opens_block(text: str, line: _Line) -> bool:
    """Whether a blank line stands above it."""
    return any(not one.strip() for one in text[line.above : line.start].split("\n")[:-1])
