"""A tree of Python files and notebooks, read without trust in any of them."""

from __future__ import annotations

import ast
import io
import json
import os
import re
import shutil
import tokenize
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

LARGEST_MODULE = 2_000_000  # bytes: what is longer was not written by hand
LARGEST_NOTEBOOK = 50_000_000  # with its pictures
LEFT_OUT = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages"})
# What decides how the tool reads a tree.
COPIED = (".py", ".ipynb", ".toml", ".cfg", ".ini", ".txt", ".yaml", ".yml", "LICENSE", "LICENSE.md")
COPIED += (
    "README.md",
    "README.rst",
    "README",
)  # by which the top of a project is known where there is no .git
_MAGIC = re.compile(r"^\s*[%!?]|^\s*\S.*\?\s*$")


@dataclass
class Code:
    """The Python text of one file; of a notebook, its cells joined by blank lines. `tree` is None for other languages."""

    path: str  # below the checkout, with slashes
    text: str

    @cached_property
    def tree(self) -> ast.Module | None:
        return _parsed(self.text) if self.text else None


@dataclass
class Checkout:
    """A folder of code. Paths are relative to it; links are not followed, so that none leads in a circle."""

    root: Path
    files: list[str] = field(init=False)
    kept: dict[Any, Any] = field(init=False, default_factory=dict)  # what was made of its modules before
    _read: dict[str, Code] = field(init=False, default_factory=dict)
    _imported: dict[str, list[str]] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.files = sorted(walk(self.root))
        self._known = frozenset(self.files)
        self._by_name: dict[str, list[str]] = {}
        for path in self.files:
            if path.endswith(".py"):
                self._by_name.setdefault(path.rsplit("/", 1)[-1], []).append(path)

    def code(self, path: str) -> Code:
        """The file's code; an empty one where it cannot be read."""
        if path not in self._read:
            self._read[path] = read(self.root, path)
        return self._read[path]

    def imports(self, path: str, node: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, str | None]]:
        """The files of this tree that an import statement of `path` runs, each with the name it is asked for."""
        folder = path.rpartition("/")[0]
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from ((file, None) for file in self._modules(folder, alias.name, 0))
            return
        module = node.module or ""
        found = list(self._modules(folder, module, node.level))
        for alias in node.names:
            below = list(self._modules(folder, f"{module}.{alias.name}".lstrip("."), node.level))
            for file in dict.fromkeys([*found, *below]):
                yield file, alias.name

    def _modules(self, folder: str, dotted: str, level: int) -> Iterator[str]:
        parts = [part for part in dotted.split(".") if part]
        bases = [_above(folder, level - 1)] if level else _bases(folder)
        for base in bases:
            if found := list(self._below(base, parts)):
                yield from found
                return
        if not level and parts:  # a folder that the script adds to sys.path
            ends = ["/".join(parts) + ".py", "/".join(parts) + "/__init__.py"]
            same = [path for end in ends for path in self._by_name.get(end.rsplit("/", 1)[-1], ())]
            matches = [path for path in same if any(path.endswith(f"/{end}") for end in ends)]
            if len(matches) == 1:
                yield matches[0]

    def _below(self, base: str, parts: list[str]) -> Iterator[str]:
        """The packages on the way to a module, and the module."""
        whole = "/".join([*([base] if base else []), *parts])
        last = [path for path in (f"{whole}.py", f"{whole}/__init__.py") if path in self._known]
        if not last:
            return
        for count in range(1, len(parts)):
            package = "/".join([*([base] if base else []), *parts[:count], "__init__.py"])
            if package in self._known:
                yield package
        yield last[0]


def walk(root: Path) -> Iterator[str]:
    """Every Python file and notebook below a folder."""
    for folder, below, names in os.walk(root, followlinks=False, onerror=lambda error: None):
        below[:] = sorted(name for name in below if name not in LEFT_OUT)
        for name in names:
            if name.endswith((".py", ".ipynb")) and ".ipynb_checkpoints" not in folder:
                yield Path(folder, name).relative_to(root).as_posix()


def read(root: Path, path: str) -> Code:
    """One file's code, decoded as well as it can be."""
    notebook = path.endswith(".ipynb")
    try:
        if (root / path).stat().st_size > (LARGEST_NOTEBOOK if notebook else LARGEST_MODULE):
            return Code(path, "")
        data = (root / path).read_bytes()
    except OSError:
        return Code(path, "")
    text = _cells(data) if notebook else _decoded(data)
    return Code(path, text)


def _decoded(data: bytes) -> str:
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding).replace("\r\n", "\n")
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return data.decode("utf-8", "replace").replace("\r\n", "\n")


def _cells(data: bytes) -> str:
    """The code cells, with magics as comments so that the lines keep their numbers."""
    try:
        cells = json.loads(data.decode("utf-8", "replace"))["cells"]
        found = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return ""
    return "\n\n".join(_without_magics(cell) for cell in found)


def _without_magics(cell: str) -> str:
    if cell.lstrip().startswith("%%"):
        return "\n".join(f"# {line}" for line in cell.splitlines())
    return "\n".join(
        f"{line[: len(line) - len(line.lstrip())]}pass  # {line.strip()}" if _MAGIC.match(line) else line
        for line in cell.splitlines()
    )


def _parsed(text: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def copy(root: Path, to: Path) -> None:
    """What the tool may read of a tree, in a folder that it may write. Links that lead out of the tree are left out."""
    top = root.resolve()
    for folder, below, names in os.walk(root, followlinks=False, onerror=lambda error: None):
        below[:] = sorted(name for name in below if name not in LEFT_OUT)
        inside = Path(folder).relative_to(root)
        (to / inside).mkdir(parents=True, exist_ok=True)
        for name in [*names, *(name for name in below if Path(folder, name).is_symlink())]:
            source = Path(folder, name)
            try:
                if source.is_symlink():
                    _copy_link(source, top, to / inside / name)
                elif name.endswith(COPIED) and source.stat().st_size <= LARGEST_NOTEBOOK and source.is_file():
                    shutil.copyfile(source, to / inside / name)
            except OSError:
                continue  # the tool does without it


def _copy_link(source: Path, top: Path, to: Path) -> None:
    aim = Path(os.path.normpath(source.parent.resolve() / os.readlink(source)))  # noqa: PTH115
    if aim.is_relative_to(top):
        to.symlink_to(os.path.relpath(aim, source.parent.resolve()))


def _above(folder: str, levels: int) -> str:
    for _ in range(levels):
        folder = folder.rpartition("/")[0]
    return folder


def _bases(folder: str) -> list[str]:
    """The folders that an absolute import is looked up in: the script's own, and those around it."""
    found = [folder]
    while found[-1]:
        found.append(found[-1].rpartition("/")[0])
    return found
