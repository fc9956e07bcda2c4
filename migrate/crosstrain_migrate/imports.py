"""Which files of its own project a file imports. Found by text and on disk: nothing is parsed, nothing is run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from crosstrain_migrate.sources import Source, Unusable, read

# What marks the top folder of a project; absolute imports are looked up no higher.
_TOPS = (".git", ".hg", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "environment.yml")
# Never taken for a part of the project, even where a checkout of it lies around the script.
_FOREIGN = frozenset(
    {
        *(
            "torch",
            "torchvision",
            "torchaudio",
            "torchtext",
            "torchdata",
            "numpy",
            "scipy",
            "sklearn",
            "pandas",
        ),
        *("accelerate", "crosstrain", "transformers", "datasets", "timm", "lightning", "ignite", "fastai"),
    }
)
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(?P<dots>\.*)(?P<module>[\w.]*)[ \t]+import\b(?P<names>[ \t]*\([^)]*\)|[^\n#;]*)"
    rb"|import[ \t]+(?P<modules>[\w., \t]+))",
    re.M,
)
_NAME = re.compile(rb"[A-Za-z_]\w*(?:[ \t]+as[ \t]+\w+)?|\*")
_SCRIPT = re.compile(rb"^(?:if[ \t(]+__name__\b|(?:for|while|with)[ \t(]|[A-Za-z_][\w.]*\()", re.M)


def mentioned(data: bytes) -> set[str]:
    """Every part of a name that import statements say: `from a.b import c` says three, and `from . import c` two: the
    package's own is empty."""
    return {part for _, module, names in _imports(data) for part in (*module.split("."), *names)}


def is_script(data: bytes) -> bool:
    """Whether a file does something when it is run: it calls something at its top level."""
    return _SCRIPT.search(data) is not None


class Project:
    """The files around one script, read once. `roots` are the folders absolute imports are looked up in."""

    def __init__(self, script: Source, known: dict[Path, Source | None]) -> None:
        self.script = script
        self.roots = _roots(script.target)
        self._known = known  # files read so far, for every script of the run; None: cannot be used

    @cached_property
    def files(self) -> list[Source]:
        """The script's local imports in the order in which they run, and the script."""
        found: dict[Path, None] = {}
        self._follow(self.script, found, set())
        return [source for source in map(self._source, found) if source is not None]

    def _follow(self, source: Source, found: dict[Path, None], begun: set[Path]) -> None:
        begun.add(source.target)
        for target in self.imported(source):
            inner = self._source(target)
            if inner is not None and inner.target not in begun:
                self._follow(inner, found, begun)
        found[source.target] = None

    def imported(self, source: Source) -> list[Path]:
        """The files that `source` imports itself, packages' `__init__.py` included."""
        found: dict[Path, None] = {}
        for level, module, names in _imports(source.code):
            for base in self._bases(source.target, level, module):
                found.update(dict.fromkeys(_chain(base, module, names)))
                if found:
                    break
        return [path for path in found if path != source.target]

    def _bases(self, target: Path, level: int, module: str) -> list[Path]:
        if level:
            return [target.parents[level - 1]] if level <= len(target.parents) else []
        top = module.split(".")[0]
        if top in _FOREIGN:
            return []
        local = [root for root in self.roots if (root / f"{top}.py").is_file() or (root / top).is_dir()]
        # A module of the standard library is shadowed by what stands beside the script, and by nothing else.
        own = [root for root in local if root == self.roots[0] or top not in sys.stdlib_module_names]
        return own[:1]

    def _source(self, path: Path) -> Source | None:
        if path == self.script.target:
            return self.script
        if path not in self._known:
            try:
                shown = Path(os.path.relpath(path, self.script.target.parent))
                self._known[path] = read(_normal(self.script.path.parent / shown))
            except Unusable:
                self._known[path] = None  # Python will say so when the script is run
        return self._known[path]


def _normal(path: Path) -> Path:
    return Path(os.path.normpath(path))


def _roots(script: Path) -> list[Path]:
    """The script's folder, which Python looks into first, and the folders above it up to the project's top."""
    folders = [script.parent, *script.parent.parents]
    top = next(
        (n for n, folder in enumerate(folders[:6]) if any((folder / name).exists() for name in _TOPS)), 0
    )
    package = 0
    while (folders[package] / "__init__.py").is_file() and package + 1 < len(folders):
        package += 1
    return folders[: max(top, package) + 1]


def _imports(data: bytes) -> Iterator[tuple[int, str, list[str]]]:
    """(level, dotted module, names asked of it) of every import statement."""
    for match in _IMPORT.finditer(data):
        if match["modules"] is not None:
            for part in match["modules"].split(b","):
                words = part.split()
                if words:
                    yield 0, words[0].decode(), []
            continue
        names = [found.split()[0].decode() for found in _NAME.findall(match["names"])]
        yield len(match["dots"]), match["module"].decode(), names


def _chain(base: Path, module: str, names: list[str]) -> Iterator[Path]:
    """The files that importing `names` from `module` below `base` runs."""
    folder = base
    for part in filter(None, module.split(".")):
        if (folder / "__init__.py").is_file() and folder != base:
            yield folder / "__init__.py"
        if (folder / f"{part}.py").is_file() and not (folder / part / "__init__.py").is_file():
            yield folder / f"{part}.py"
            return
        folder /= part
    if not folder.is_dir():
        return
    if (folder / "__init__.py").is_file() and (module or folder == base):
        yield folder / "__init__.py"
    for name in names:
        if (folder / f"{name}.py").is_file():
            yield folder / f"{name}.py"
        elif (folder / name / "__init__.py").is_file():
            yield folder / name / "__init__.py"
