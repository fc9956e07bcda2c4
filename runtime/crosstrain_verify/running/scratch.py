"""The folders that runs write to: each run gets a copy of the project, or an empty folder."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from crosstrain_verify.running.client import VerifyInputError

# Folders that no training script reads, and which are often larger than everything else.
SKIPPED = frozenset(
    {".git", ".hg", ".svn", ".tox", ".nox", ".venv", "venv", "env", "node_modules", "__pycache__"}
    | {".mypy_cache", ".ruff_cache", ".pytest_cache", ".ipynb_checkpoints"}
)
SIZE_LIMIT = 1 << 30  # bytes
LINK_ABOVE = 1 << 26  # bytes from which on a folder without Python files is linked


def copy_project(source: Path, target: Path, links: Iterable[str] = (), limit: int = SIZE_LIMIT) -> None:
    """Copy a project's files to ``target``, which must not exist.

    Version control, environments and caches are left out. The top-level names in ``links``, which are only read, become
    symbolic links. Raises VerifyInputError above ``limit`` bytes, before anything is copied.
    """
    linked = frozenset(links)
    sizes = {entry: _size(entry) for entry in source.iterdir() if entry.name not in SKIPPED | linked}
    total = sum(sizes.values())
    if total > limit:
        largest = sorted(sizes, key=lambda entry: sizes[entry], reverse=True)[:3]
        names = ", ".join(f"{entry.name} ({sizes[entry] / 1e6:,.0f} MB)" for entry in largest)
        raise VerifyInputError(
            f"{source} holds {total / 1e9:.1f} GB, and every run gets a copy of it; largest: {names}. "
            "Name folders that are only read with --link, or the part that is needed with --folder"
        )
    target.mkdir()
    for entry in sizes:
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, target / entry.name, symlinks=True, ignore=_skip)
        else:
            shutil.copy2(entry, target / entry.name, follow_symlinks=False)
    for name in linked:
        (target / name).symlink_to((source / name).resolve())


def large_folders(source: Path) -> list[str]:
    """Top-level folders of data that can be linked, for runs that cannot write through a link."""
    return [
        entry.name
        for entry in source.iterdir()
        if entry.is_dir()
        and not entry.is_symlink()
        and entry.name not in SKIPPED
        and _size(entry) > LINK_ABOVE
        and not any(entry.rglob("*.py"))
    ]


def _skip(_: str, names: list[str]) -> set[str]:
    return {name for name in names if name in SKIPPED}


def _size(entry: Path) -> int:
    if entry.is_symlink() or not entry.is_dir():
        return entry.lstat().st_size
    return sum(file.lstat().st_size for file in _files(entry))


def _files(folder: Path) -> Iterator[Path]:
    for base, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name not in SKIPPED]
        yield from (Path(base) / name for name in names)
