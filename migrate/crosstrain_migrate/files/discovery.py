"""Which files a command line means: files as named, directories walked as git and ruff would walk them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crosstrain_migrate.results import InputError
from crosstrain_migrate.syntax.nodes import words

from .sources import NOTEBOOK

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

# Directories that hold other people's or generated code.
EXCLUDED = words(
    ".bzr .direnv .eggs .git .hg .ipynb_checkpoints .mypy_cache .nox .pytest_cache .ruff_cache .svn"
    " .tox .venv .vscode __pycache__ __pypackages__ _build build buck-out dist node_modules"
    " site-packages venv"
)


@dataclass(frozen=True, slots=True)
class Found:
    """`named` files were asked for by name: they are never left out, and always get an answer."""

    path: Path
    named: bool


def discover(paths: Sequence[Path], exclude: Sequence[str] = ()) -> Iterator[Found | InputError]:
    """The files that `paths` mean, each once, in a stable order.

    A directory is walked without following links (what they lead to inside it is found anyway, and what is
    outside was not asked for); `exclude` holds patterns as in .gitignore, relative to the directory named.
    """
    seen: set[str] = set()
    for path in paths:
        if path.is_dir():
            empty = True
            for file in _walk(path, exclude):
                empty = False
                if _is_new(file, seen):
                    yield Found(file, named=False)
            if empty:
                reason = "holds no Python files and no notebooks"
                yield InputError(path, reason, "Name a directory or a file that does.")
        elif _is_new(path, seen):
            yield Found(path, named=True)


def _is_new(path: Path, seen: set[str]) -> bool:
    real = os.path.realpath(path)
    if real in seen:
        return False
    seen.add(real)
    return True


@dataclass(frozen=True, slots=True)
class _Patterns:
    """The patterns of one ignore file, which hold below `base`."""

    base: str
    spec: GitIgnoreSpec

    def verdict(self, path: str) -> bool | None:
        """True: ignored; False: taken back with `!`; None: nothing said."""
        return self.spec.check_file(path[len(self.base) :].lstrip(os.sep)).include


def _walk(root: Path, exclude: Sequence[str]) -> Iterator[Path]:
    top = os.path.realpath(root)
    inherited = _inherited_patterns(top)
    if _ignored(top + os.sep, inherited):
        inherited = []  # someone who names an ignored directory wants it
    if exclude:
        inherited.append(_Patterns(top, _spec(exclude)))
    yield from _walk_directory(root, top, inherited)


def _walk_directory(directory: Path, real: str, patterns: list[_Patterns]) -> Iterator[Path]:
    patterns = [*patterns, *_patterns_in(real)]
    try:
        with os.scandir(directory) as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
    except (PermissionError, FileNotFoundError):
        return  # git and ruff pass unreadable directories over as well, and this one may be gone since it was listed
    for entry in entries:
        place = os.path.join(real, entry.name)  # noqa: PTH118 (a Path per entry triples the time of the walk)
        if entry.is_dir(follow_symlinks=False):
            foreign = entry.name in EXCLUDED or entry.name.endswith(".egg-info")
            if foreign or _ignored(place + os.sep, patterns) or (Path(place) / "pyvenv.cfg").exists():
                continue
            yield from _walk_directory(directory / entry.name, place, patterns)
        elif _is_python(entry) and not _ignored(place, patterns):
            yield directory / entry.name


def _is_python(entry: os.DirEntry[str]) -> bool:
    return entry.name.endswith((".py", ".pyw", NOTEBOOK)) and entry.is_file(follow_symlinks=False)


def _ignored(path: str, patterns: list[_Patterns]) -> bool:
    for one in reversed(patterns):  # the deepest file that says anything decides
        if (verdict := one.verdict(path)) is not None:
            return verdict
    return False


def _inherited_patterns(top: str) -> list[_Patterns]:
    """Ignore files between the repository's root and `top`, outermost first; none outside a repository."""
    above = [Path(top), *Path(top).parents]
    for depth, place in enumerate(above):
        if (place / ".git").exists():
            exclude_file = place / ".git" / "info" / "exclude"
            return [
                *_patterns_from(exclude_file, str(place)),
                *(one for parent in reversed(above[1 : depth + 1]) for one in _patterns_in(str(parent))),
            ]
    return []


def _patterns_in(directory: str) -> list[_Patterns]:
    return _patterns_from(Path(directory) / ".gitignore", directory)


def _patterns_from(file: Path, base: str) -> list[_Patterns]:
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:  # there is none, or none that git could read
        return []
    return [_Patterns(base, _spec(lines))]


def _spec(lines: Sequence[str]) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    return GitIgnoreSpec.from_lines(lines)
