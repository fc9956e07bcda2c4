"""Which files of its own project a file imports. Found by text and on disk: nothing is run."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, partial
from pathlib import Path

from crosstrain_migrate.syntax.computed_imports import computed_imports, named_by_options, values_of_options
from crosstrain_migrate.syntax.program import MARKER, parses, tree_of
from crosstrain_migrate.syntax.suppress import skips_file

from .reading import read
from .search_path import added_folders
from .sources import Source, Unusable

Roots = tuple[Path, ...]  # the folders that Python looks into for an absolute import, in this order
Statement = tuple[int, str, tuple[str, ...]]  # level, dotted module, names asked of it

# What marks the top folder of a project; absolute imports are looked up no higher. Of one repository, what is installed
# is one project with the folders in it that have requirements of their own.
_REPOSITORIES = (".git", ".hg")
_INSTALLED = ("pyproject.toml", "setup.py")
_SOURCE = "src"
_TOPS = (*_REPOSITORIES, "setup.cfg", "requirements.txt", "environment.yml")
# The same where there is none of these, as in an archive of a repository; folders inside one have their README as well.
_LICENSES = ("LICENSE", "LICENSE.txt", "LICENSE.md")
_SIGNS = ("README.md", "README.rst", "README")
# Never taken for a part of the project, even where a checkout of it lies around the script.
_FOREIGN = {
    *("torch", "torchvision", "torchaudio", "torchtext", "torchdata", "numpy", "scipy", "sklearn", "pandas"),
    *("accelerate", "crosstrain", "transformers", "timm", "lightning", "ignite", "fastai"),
}
_OFTEN_OWN = {"datasets"}  # a library's name, which projects give to a module of their own as well
_IMPORT = re.compile(
    rb"(?:^|;)[ \t]*(?:from[ \t]+(?P<dots>\.*)(?P<module>[\w.]*)[ \t]+import\b(?P<names>[ \t]*\([^)]*\)|[^\n#;]*)"
    rb"|import[ \t]+(?P<modules>[\w., \t]+))",
    re.M,
)
_NAME = re.compile(rb"[A-Za-z_]\w*(?:[ \t]+as[ \t]+\w+)?|\*")
_PACKAGE = "__init__.py"
_BY_TEXT = re.compile(rb"\b(?:import_module|__import__)\s*\(")
_MOST_BY_TEXT = 60  # files that one text may mean; where there are more, it is not known which
_join = os.path.join  # joining Paths takes longer than asking the file system about the result
_GUARD = re.compile(rb"^if[ \t(]+__name__\b", re.M)
_ACTS = re.compile(rb"^(?:(?:for|while|with)[ \t(]|[A-Za-z_][\w.]*\()", re.M)
# The same in a block of the top level: `try: main()`, `if TASK == "captions": trainer.train()`.
_ACTS_IN_BLOCK = re.compile(
    rb"^(?:try|if|elif|else)\b[^\n]*:[ \t]*(?:#[^\n]*)?\n(?:(?:[ \t][^\n]*)?\n)*?[ \t]+(?:[\w.]+\.)?(?:main|train|fit|run)\w*\(",
    re.M,
)
_BEGINS = re.compile(rb"^[A-Za-z_][\w.]*\(\s*\)", re.M)
_OF_PACKAGE = re.compile(rb"^from[ \t]+\.", re.M)


def is_script(data: bytes) -> bool:
    """Whether a file does something when it is run: it calls something at its top level."""
    return any(one.search(data) is not None for one in (_GUARD, _ACTS, _ACTS_IN_BLOCK))


def only_registers(data: bytes, name: str) -> bool:
    """Whether a package's module, which Python does not run by its path, calls something at its top level and yet begins
    nothing: it has no guard, and no `main()`."""
    if name == _PACKAGE:
        return _GUARD.search(data) is None
    begins = _GUARD.search(data) or _BEGINS.search(data)
    return _OF_PACKAGE.search(data) is not None and begins is None


class Disk:
    """What is a file and what a folder, by path: the file system is asked about each path once."""

    def __init__(self) -> None:
        self._mode = cache(_mode)

    def is_file(self, path: str) -> bool:
        return stat.S_ISREG(self._mode(path))

    def is_folder(self, path: str) -> bool:
        return stat.S_ISDIR(self._mode(path))

    def exists(self, path: str) -> bool:
        return self._mode(path) != 0


def _mode(path: str) -> int:
    try:
        return os.stat(path).st_mode  # noqa: PTH116 (a Path costs more than the answer)
    except (OSError, ValueError):
        return 0


class ImportGraph:
    """Which file of a project imports which, for every script of a run.

    Each file is read, parsed and searched for imports once, each import looked up once for every list of folders that
    scripts look into.
    """

    def __init__(self, sources: Iterable[Source] = ()) -> None:
        self._sources: dict[Path, Source | None] = {source.target: source for source in sources}
        self._disk = Disk()
        # The folder of a script, which Python looks into first, and the folders above it up to the project's top.
        self.roots = cache(partial(_roots, disk=self._disk))
        self.added = cache(self._added)
        self.imported = cache(self._imported)
        self.by_text = cache(self._by_text)
        self.links = cache(self._links)  # whether a file can be a part of a program
        self._statements = cache(lambda source: list(dict.fromkeys(_imports(source.code))))

    def _added(self, source: Source) -> tuple[Path, ...]:
        """The folders that a file adds to `sys.path`."""
        named = map(Path, added_folders(source.text, source.target)) if b"sys.path" in source.code else ()
        return tuple(folder for folder in named if self._disk.is_folder(str(folder)))

    def _imported(self, source: Source, roots: Roots) -> list[Path]:
        """The files that `source` imports itself where Python looks into `roots`, packages' `__init__.py` included."""
        found: dict[str, None] = {}
        for level, module, names in self._statements(source):
            base = self._base(source.target, roots, level, module, names)
            if base is not None:
                found.update(dict.fromkeys(_chain(base, module, names, self._disk)))
        found.pop(str(source.target), None)
        return [Path(path) for path in found]

    def _by_text(self, source: Source, roots: Roots) -> list[Path]:
        """The files that `import_module("models." + name)` may import: all in the folder that the text names."""
        if _BY_TEXT.search(source.code) is None or not _parses(source.text):
            return []
        found = (*self._meant(source, roots), *self._named_by_options(source, roots))
        return [Path(path) for path in dict.fromkeys(found) if path != str(source.target)]

    def _named_by_options(self, source: Source, roots: Roots) -> Iterator[str]:
        """What `import_module(args.trainer)` may import: the option's default and choices, told here or in a file that
        this one imports."""
        names = named_by_options(tree_of(source.text))
        beside = (self.source(path, source) for path in self.imported(source, roots)) if names else ()
        for one in (source, *beside):
            if one is None or b"add_argument" not in one.code or not _parses(one.text):
                continue
            for module in values_of_options(tree_of(one.text), names):
                if (base := self._base(source.target, roots, 0, module, ())) is not None:
                    yield from _chain(base, module, (), self._disk)

    def _meant(self, source: Source, roots: Roots) -> Iterator[str]:
        for pattern in dict.fromkeys(computed_imports(tree_of(source.text)).values()):
            module = pattern.lstrip(".")
            base = (
                self._base(source.target, roots, len(pattern) - len(module), module, ())
                if module != "*"
                else None
            )
            if base is None or "*" in module.split(".")[0]:
                continue
            where = "/".join(module.split("."))
            files = sorted(str(p) for end in (".py", f"/{_PACKAGE}") for p in Path(base).glob(where + end))
            for file in files if len(files) <= _MOST_BY_TEXT else ():
                named = file.removesuffix(f"/{_PACKAGE}").removesuffix(".py")
                yield from _chain(base, os.path.relpath(named, base).replace(os.sep, "."), (), self._disk)

    def _base(self, target: Path, roots: Roots, level: int, module: str, names: Sequence[str]) -> str | None:
        """The folder that `module` is looked up in. Folders of one name without `__init__.py` are one package to Python."""
        if level:
            return str(target.parents[level - 1]) if level <= len(target.parents) else None
        top = module.split(".")[0]
        if top in _FOREIGN:
            return None
        # A module of the standard library is shadowed by what stands beside the script, and by nothing else.
        parts = ""
        packages = (_join(str(root), top, _PACKAGE) for root in roots)
        has_modules = top != module and any(map(self._disk.is_file, packages))
        for root in map(str, roots[:1] if top in sys.stdlib_module_names else roots):
            place = _join(root, top)
            # Run by `-m`, a script finds the package `pkg` of `pkg.loop`, and not the pkg.py beside it.
            is_module = not has_modules and self._disk.is_file(f"{place}.py")
            if is_module or self._disk.is_file(_join(place, _PACKAGE)):
                return root
            is_folder = not parts and self._disk.is_folder(place)
            if is_folder and ("*" in module or any(_chain(root, module, names, self._disk))):
                parts = root
        if parts or top in _OFTEN_OWN:  # whose folder may hold nothing but data
            return parts or None
        own = next((root for root in roots if root.name == top), None)
        if own is not None:  # the project is the package, and Python is told of the folder above it
            return str(own.parent)
        # Packages of Python 2's time name their own modules without a dot.
        beside = str(target.parent)
        is_own = target.name == _PACKAGE and self._disk.is_file(f"{_join(beside, top)}.py")
        return beside if is_own and top not in sys.stdlib_module_names else None

    def source(self, path: Path, script: Source) -> Source | None:
        """A file that `script` imports; None where it cannot be used."""
        if path == script.target:
            return script
        if path not in self._sources:
            try:
                shown = Path(os.path.relpath(path, script.target.parent))
                self._sources[path] = read(Path(os.path.normpath(script.path.parent / shown)))
            except Unusable:
                self._sources[path] = None  # Python will say so when the script is run
        return self._sources[path]

    def _links(self, source: Source) -> bool:
        return not skips_file(source.text) and _parses(source.text)


class Project:
    """The files around one script. `roots` are the folders absolute imports are looked up in.

    `noticed` is told of each file as soon as it is found, and may raise to end the search. by_text: with the files that
    a module's computed name may mean.
    """

    def __init__(
        self,
        script: Source,
        graph: ImportGraph,
        noticed: Callable[[Source], None] = lambda _: None,
        by_text: bool = True,
    ) -> None:
        self.script = script
        self._graph = graph
        self._noticed = noticed
        self._reads_texts = by_text
        self.roots = graph.roots(script.target.parent)
        self._told = self.roots[:1]
        self._look_into(graph.added(script))

    @cached_property
    def files(self) -> list[Source]:
        """The script's local imports in the order in which they run, and the script."""
        found: dict[Path, None] = {}
        self._follow(self.script, found, set())
        sources = (self._graph.source(path, self.script) for path in found)
        return [source for source in sources if source is not None]

    def _follow(self, source: Source, found: dict[Path, None], begun: set[Path]) -> None:
        begun.add(source.target)
        self._noticed(source)
        self._look_into(self._graph.added(source))
        roots: Roots = ()
        while roots != self.roots:  # a file that is imported may add folders for the ones below it
            roots = self.roots
            for target in self.imported(source):
                inner = self._graph.source(target, self.script)
                if inner is not None and inner.target not in begun:
                    self._follow(inner, found, begun)
        found[source.target] = None

    def nearest(self, files: int, size: int) -> list[Source]:
        """The script and the files to which the fewest imports lead, no more than `files` and than `size` bytes of them, in the
        order in which they run. What a package's `__init__.py` imports is as near as the package, which passes it on."""
        near: dict[Path, Source | None] = {}
        level, size = [self.script.target], size + len(self.script.code)
        while level:
            below: list[Path] = []
            for target in level:  # which grows meanwhile
                if target in near or len(near) >= files:
                    continue
                one = self._graph.source(target, self.script)
                fits = one is not None and len(one.code) <= size and self._graph.links(one)
                near[target] = one if fits else None
                if one is not None and fits:
                    size -= len(one.code)
                    (level if target.name == _PACKAGE else below).extend(self.imported(one))
            level = below
        ordered: dict[Path, Source] = {}
        self._in_order(self.script, {at: one for at, one in near.items() if one is not None}, set(), ordered)
        return list(ordered.values())

    def _in_order(
        self, source: Source, near: dict[Path, Source], begun: set[Path], ordered: dict[Path, Source]
    ) -> None:
        begun.add(source.target)
        for target in self.imported(source):
            if target in near and target not in begun:
                self._in_order(near[target], near, begun, ordered)
        ordered[source.target] = source

    def _look_into(self, folders: Roots) -> None:
        """Before the folders above the script, into which Python looks only if it is told."""
        new = dict.fromkeys(folder for folder in folders if folder not in self._told)
        self._told += tuple(new)
        self.roots = tuple(dict.fromkeys((*self._told, *self.roots)))

    def imported(self, source: Source) -> list[Path]:
        more = self._graph.by_text(source, self.roots) if self._reads_texts else []
        return [*self._graph.imported(source, self.roots), *more]


def _parses(text: str) -> bool:
    return MARKER not in text and parses(text)


def _roots(folder: Path, disk: Disk) -> tuple[Path, ...]:
    folders = [folder, *folder.parents]
    near = [str(one) for one in folders[:10]]
    repository = next(_marked(near, _REPOSITORIES, disk), len(near))
    tops = (
        n
        for signs in (_INSTALLED, _TOPS, _LICENSES, _SIGNS)
        for n in _marked(near[: repository + 1], signs, disk)
    )
    top = next(tops, 0)
    package = 0
    while disk.is_file(_join(str(folders[package]), _PACKAGE)) and package + 1 < len(folders):
        package += 1
    found = folders[: max(top, package) + 1]
    last = str(found[-1])
    source = found[-1] / _SOURCE  # what is installed lies in it, and scripts lie beside it
    is_beside = source not in found and any(disk.exists(_join(last, sign)) for sign in _INSTALLED)
    return (*found, source) if is_beside and disk.is_folder(str(source)) else tuple(found)


def _marked(folders: Sequence[str], signs: Sequence[str], disk: Disk) -> Iterator[int]:
    """Which of these folders hold one of these signs."""
    return (n for n, one in enumerate(folders) if any(disk.exists(_join(one, sign)) for sign in signs))


def _imports(data: bytes) -> Iterator[Statement]:
    """(level, dotted module, names asked of it) of every import statement."""
    for match in _IMPORT.finditer(data):
        if match["modules"] is not None:
            for part in match["modules"].split(b","):
                words = part.split()
                if words:
                    yield 0, words[0].decode(), ()
            continue
        names = tuple(found.split()[0].decode() for found in _NAME.findall(match["names"]))
        yield len(match["dots"]), match["module"].decode(), names


def _chain(base: str, module: str, names: Sequence[str], disk: Disk) -> Iterator[str]:
    """The files that importing `names` from `module` below `base` runs."""
    folder = base
    for part in filter(None, module.split(".")):
        package, inner = _join(folder, _PACKAGE), _join(folder, part)
        if folder != base and disk.is_file(package):
            yield package
        if disk.is_file(f"{inner}.py") and not disk.is_file(_join(inner, _PACKAGE)):
            yield f"{inner}.py"
            return
        folder = inner
    if not disk.is_folder(folder):
        return
    package = _join(folder, _PACKAGE)
    if (module or folder == base) and disk.is_file(package):
        yield package
    for inner in (_join(folder, name) for name in names):
        if disk.is_file(f"{inner}.py"):
            yield f"{inner}.py"
        elif disk.is_file(_join(inner, _PACKAGE)):
            yield _join(inner, _PACKAGE)
