"""Several files as one text: a script is understood and rewritten together with what it imports from its project.

A *program* is the text of the imported files, in the order in which they run, and of the script itself at the end, each
under a marker line that names it. Every stage works on that text as on any script; the tree of a program holds one
`Region` (a module of its own) for each file. The text of a single file is a program without markers.
"""

from __future__ import annotations

import ast
import json
import posixpath
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import PurePosixPath
from typing import cast

from .bindings import bindings
from .problems import UNPARSABLE
from .walks import statements

MARKER = "'crosstrain file "


@dataclass(frozen=True, slots=True)
class Part:
    """One file of a program. `first` is the line of the program that is its line 1; `path` is empty without markers.

    `roots` are the folders that absolute imports are looked up in; all paths are relative to the outermost of them.
    `shared`: other scripts, migrated with this one or standing beside it, import the file as well.
    """

    path: str
    text: str
    first: int = 1
    roots: tuple[str, ...] = ()
    ends: bool = True  # whether the file's last line has its line end
    shared: bool = False

    @property
    def own_text(self) -> str:
        """The text as it stands in the file."""
        return self.text if self.ends else self.text.removesuffix("\n")

    @property
    def last(self) -> int:
        return self.first + self.text.count("\n")


class Region(ast.Module):
    """The statements of one file of a program; `lineno` is the line of the program that is its line 1."""

    path: str
    lineno: int
    roots: tuple[str, ...]

    @cached_property
    def taken(self) -> dict[str, list[tuple[ast.ImportFrom, str]]]:
        """Where its top level imports a name from, and as what it is known there."""
        found: dict[str, list[tuple[ast.ImportFrom, str]]] = {}
        for node in (one for one in self.body if isinstance(one, ast.ImportFrom)):
            for alias in node.names:
                found.setdefault(alias.asname or alias.name, []).append((node, alias.name))
        return found


def link(
    files: Iterable[tuple[str, str]], roots: tuple[str, ...], shared: frozenset[str] = frozenset()
) -> str:
    """The program of (path, text) pairs, the script last. `shared`: the paths that other scripts import as well."""
    found = []
    for path, text in files:
        told = {"path": path, "roots": roots, "ends": text.endswith("\n") or not text}
        about = json.dumps(told | ({"shared": True} if path in shared else {}))
        found.append(f"{MARKER}{about[1:-1]}'\n{text}" + ("" if text.endswith("\n") or not text else "\n"))
    return "".join(found)


def parts(text: str) -> list[Part]:
    """The files of a program, in order."""
    if not text.startswith(MARKER):
        return [Part("", text)]
    found: list[Part] = []
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if line.startswith(MARKER)]
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        about = json.loads("{" + lines[start][len(MARKER) : -1] + "}")
        inner = lines[start + 1 : end]
        body = "\n".join(inner) if end == len(lines) else "".join(f"{line}\n" for line in inner)
        roots, shared = tuple(about["roots"]), "shared" in about
        found.append(Part(about["path"], body, start + 2, roots, about["ends"], shared))
    return found


def join(text: str, pieces: Iterable[str]) -> str:
    """The program `text` with `pieces` as the new texts of its parts."""
    own = parts(text)
    if len(own) == 1 and not own[0].path:
        return next(iter(pieces))
    lines = text.split("\n")
    return "".join(f"{lines[part.first - 2]}\n{piece}" for part, piece in zip(own, pieces, strict=True))


@lru_cache(maxsize=4)
def tree_of(text: str) -> ast.Module:
    """The tree of one file's text. It is shared, so callers must not change it. Raises what `ast.parse` raises."""
    return _read(text)


def _read(text: str) -> ast.Module:
    """The tree of a text, in which `x.__len__()` is read as `len(x)`."""
    tree = ast.parse(text)
    for node in ast.walk(tree) if ".__len__()" in text else ():
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name() | ast.Attribute() as of, attr="__len__"), args=[]
            ):
                node.func, node.args = ast.copy_location(ast.Name("len", ast.Load()), node.func), [of]
    return tree


@cache
def parses(text: str) -> bool:
    """Whether a file's text parses: asked once of each."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about invalid escapes, say
        try:
            tree_of(text)
        except UNPARSABLE:
            return False
    return True


def parse(text: str) -> ast.Module:
    """A new tree of a script or a program, which the caller may change. Raises what `ast.parse` raises."""
    tree = _read(text)
    if not text.startswith(MARKER):
        return tree
    own = parts(text)
    regions = [_region(tree, part) for part in own]
    for region in regions[:-1]:
        region.body = [s for s in region.body if not is_main_test(s)]  # not what an import runs
    links = Links(regions)
    for region in regions:
        _spell_out_stars(region, links)
    tree.body = cast(list[ast.stmt], regions)  # a tree that is walked and never compiled may hold modules
    return tree


def _region(tree: ast.Module, part: Part) -> Region:
    last = part.last
    body = [s for s in tree.body if part.first <= s.lineno < last]
    region = Region(body=body, type_ignores=[])
    region.path, region.lineno, region.roots = part.path, part.first, part.roots
    return region


def is_main_test(node: ast.AST) -> bool:
    """`if __name__ == "__main__":`"""
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _spell_out_stars(region: Region, links: Links) -> None:
    """Replaces the star of `from .layers import *` by the names it imports, so that no other stage has to handle stars."""
    for node in statements(region):
        if not isinstance(node, ast.ImportFrom) or node.names[0].name != "*":
            continue
        source = links.region(links.find(region, node.level, node.module or ""))
        if source is not None:
            star = node.names[0]
            names = public_names(source)
            node.names = [ast.copy_location(ast.alias(name), star) for name in names] or node.names


def public_names(region: ast.Module) -> list[str]:
    """The names that `from region import *` binds."""
    for node in region.body:
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets
        ):
            listed = node.value.elts if isinstance(node.value, ast.List | ast.Tuple) else []
            return [str(n.value) for n in listed if isinstance(n, ast.Constant)]
    return sorted(name for name in bindings(region.body) if not name.startswith("_"))


class Links:
    """What an import of one linked file means: a path, with `.py` for a file, without for a folder."""

    def __init__(self, regions: Iterable[Region]) -> None:
        self.regions = {region.path: region for region in regions}
        self.folders = {str(above) for path in self.regions for above in PurePosixPath(path).parents} - {"."}

    def find(self, region: Region, level: int, dotted: str) -> str | None:
        """What `import dotted` (level 0) or `from ..dotted import` (level 2) names; None for what is not linked."""
        tail = dotted.split(".") if dotted else []
        if level:
            base = posixpath.dirname(region.path)
            return self._existing(posixpath.join(base, *[".."] * (level - 1)), tail)
        beside, name = posixpath.split(region.path)
        own = (beside,) if name == "__init__.py" else ()  # as in Python 2, where no root has it
        found = (self._existing(root, tail) for root in (*region.roots, *own))
        return next((path for path in found if path is not None), None)

    def _existing(self, base: str, tail: list[str]) -> str | None:
        path = posixpath.normpath(posixpath.join(base, *tail))
        path = "" if path == "." else path
        if tail and f"{path}.py" in self.regions:
            return f"{path}.py"
        return path if path in self.folders or posixpath.join(path, "__init__.py") in self.regions else None

    def region(self, path: str | None) -> Region | None:
        """The file itself, or a package's `__init__.py`."""
        if path is None:
            return None
        return self.regions.get(path) or self.regions.get(posixpath.join(path, "__init__.py"))


def modules_of(tree: ast.Module) -> list[ast.Module]:
    """The files of a program, the script's own last; a script is its only one."""
    regions: list[ast.Module] = [node for node in tree.body if isinstance(node, Region)]
    return regions or [tree]


def path_of(module: ast.Module) -> str:
    """The path of a program's file; empty for a script."""
    return module.path if isinstance(module, Region) else ""


def links_of(tree: ast.Module) -> Links:
    return Links(node for node in tree.body if isinstance(node, Region))
