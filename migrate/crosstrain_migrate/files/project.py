"""Scripts of several files: each is migrated together with what it imports from its own project, all or nothing.

A file that several scripts import is changed once, and only in a way that is right for all of them.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from crosstrain_migrate.files.may_train import may_train
from crosstrain_migrate.outcome import Migrated
from crosstrain_migrate.results import Change, FileResult, Finding, InputError, RoleFact
from crosstrain_migrate.syntax import program
from crosstrain_migrate.syntax.problems import OTHER, UNPARSABLE, syntax_problem
from crosstrain_migrate.syntax.program import tree_of
from crosstrain_migrate.syntax.suppress import skips_file

from .import_graph import ImportGraph, Project, is_script
from .progress import Progress
from .sources import Broken, Source

Said = TypeVar("Said", Change, Finding, RoleFact)
# Beyond these a script is understood with the files nearest to it alone: a library's internals are not what trains.
MOST_FILES, MOST_BYTES = 130, 600_000


class Linked(Source):
    """A program in the place of its script: a text that is written to no file."""

    def encode(self, text: str) -> bytes:
        return text.encode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True)
class Unit:
    """What is migrated at once: a file, or a script (the last of `files`) with what it imports."""

    files: tuple[Source, ...]
    whole: Source

    def split(self, done: Migrated) -> list[Migrated]:
        """The result of `whole`, file by file."""
        if len(self.files) == 1:
            return [done]
        return _split(self.files, done.result)


def units(sources: Iterable[Source], progress: Progress | None = None) -> list[Unit]:
    """The scripts among `sources` with their imports, and the files that belong to no script."""
    listed = list(sources)
    graph = ImportGraph(listed)
    counted = (
        progress.over(listed, f"imports of {{}} of {len(listed)} files followed") if progress else listed
    )
    programs = {source.target: one for source in counted if (one := _program(source, graph)) is not None}
    importers = Counter(file.target for one in programs.values() for file in one.files[:-1])
    importers.update(target for target in _imported_beside(programs, graph) if target in importers)
    shared = frozenset(target for target, scripts in importers.items() if scripts > 1)
    found = {target: one.linked(shared) for target, one in programs.items()}
    covered = set(importers)
    return [
        found.get(source.target) or Unit((source,), source)
        for source in listed
        if source.target in found
        or source.target not in covered
        or (_runs(source) and may_train(source.data))
    ]


def _imported_beside(programs: dict[Path, _Program], graph: ImportGraph) -> Iterator[Path]:
    """What the other scripts import, in the folders of these and where their modules are found, which nobody has asked for."""
    asked = {file.target for one in programs.values() for file in one.files}
    folders = {
        folder: one.files[-1] for target, one in programs.items() for folder in (*one.roots, target.parent)
    }
    for folder, script in folders.items():
        for path in sorted(folder.glob("*.py")):
            source = graph.source(path, script) if path not in asked else None
            if source is not None and is_script(source.data):
                yield from (file.target for file in _around(source, graph)[1][:-1])


def _runs(source: Source) -> bool:
    """Whether a file is run by itself; a package's `__main__.py` may be begun by an entry point that the package names."""
    return source.is_cells or is_script(source.data) or source.path.name == "__main__.py"


@dataclass(frozen=True, slots=True)
class _Program:
    """A script (the last of `files`) with what it imports."""

    files: tuple[Source, ...]
    roots: tuple[Path, ...]
    problem: InputError | None = None  # for which it cannot run

    def linked(self, shared: frozenset[Path]) -> Unit:
        source = self.files[-1]
        if self.problem is not None:
            told = (source.path, source.target, source.data, source.text, source.encoding)
            return Unit((source,), Broken(*told, self.problem))
        top = os.path.commonpath(self.roots)  # so that a module has one name, however it is imported

        def under(path: Path) -> str:
            return os.path.relpath(path, top).replace(os.sep, "/")

        text = program.link(
            ((under(file.target), file.text) for file in self.files),
            tuple(map(under, self.roots)),
            frozenset(map(under, shared)),
        )
        return Unit(self.files, Linked(source.path, source.target, source.data, text, source.encoding))


def _program(source: Source, graph: ImportGraph) -> _Program | None:
    """The program of a script that trains, itself or in what it imports; None for anything else."""
    if not _runs(source) or skips_file(source.text):
        return None
    project = Project(source, graph)
    if not project.imported(source):
        return None
    project, around = _around(source, graph)
    files = [file for file in around if file is source or graph.links(file)]
    unread = [one for one in around if one not in files]
    problem = _of_other_python(source, unread)
    if len(files) == 1 and problem is None:
        return None
    # A module with the loop in it need not name torch itself.
    code = b"\n".join(file.code for file in (*files, *(unread if problem is not None else ())))
    if not may_train(code) or not graph.links(source):
        return None
    return _Program(tuple(files) if problem is None else (source,), project.roots, problem)


def _around(script: Source, graph: ImportGraph) -> tuple[Project, list[Source]]:
    """A script and what it imports, as far as that is worth reading; the script last."""
    for by_text in (True, False):  # what a computed name may mean is left out first
        project = Project(script, graph, _limit(script, graph), by_text)
        try:
            return project, project.files
        except _TooLarge:
            pass
    return project, project.nearest(MOST_FILES, MOST_BYTES)


def _of_other_python(script: Source, unread: Iterable[Source]) -> InputError | None:
    """Why a script cannot run that imports a module of another Python."""
    for file in unread:
        try:
            tree_of(file.text)
        except UNPARSABLE as error:
            problem = syntax_problem(file.path, file.text, error)
            if problem.reason.startswith(OTHER):
                reason = f"imports {file.path}, which {problem.reason}, line {problem.line}"
                return InputError(script.path, reason, problem.remedy)
    return None


def _limit(script: Source, graph: ImportGraph) -> Callable[[Source], None]:
    size = Counter[str]()

    def count(file: Source) -> None:
        if file is script or graph.links(file):
            size.update(files=1, bytes=len(file.code))
        if size["files"] > MOST_FILES or size["bytes"] > MOST_BYTES:
            raise _TooLarge

    return count


class _TooLarge(Exception):
    """A script has more code around it than is worth linking."""


# -- from one result to each file's own ----------------------------------------------------------------------


def _split(files: tuple[Source, ...], result: FileResult) -> list[Migrated]:
    places = _Places(files, result.before)
    after = program.parts(result.after)
    found = []
    for number, file in enumerate(files):
        script = number == len(files) - 1
        own = FileResult(
            file.path,
            file.text,
            after[number].own_text,
            changes=places.told(result.changes, number, "reason"),
            findings=places.told(result.findings, number, "reason", "remedy"),
            roles=places.told(result.roles, number, "evidence"),
            trains=script and result.trains,
            extras=result.extras if script else {},
        )
        found.append(Migrated(file, own))
    return found


class _Places:
    """Lines of a program as lines of its files."""

    def __init__(self, files: tuple[Source, ...], text: str) -> None:
        self._files = files
        self._parts = program.parts(text)
        self._names = [part.path for part in self._parts]

    def file(self, line: int) -> int:
        """The number of the file that `line` is in; a marker belongs to the file it begins."""
        return max(0, sum(part.first - 1 <= line for part in self._parts) - 1)

    def line(self, line: int) -> int:
        return max(1, line - self._parts[self.file(line)].first + 1)

    def told(self, said: Iterable[Said], number: int, *texts: str) -> tuple[Said, ...]:
        """What is said of file `number`, in its own lines; `texts` are the fields that may speak of lines."""
        own = (one for one in said if self.file(one.line) == number)
        found: list[Said] = []
        for one in own:
            spoken: dict[str, Any] = {name: self.spoken(getattr(one, name), number) for name in texts}
            found.append(replace(one, line=self.line(one.line), **spoken))
        return tuple(found)

    def spoken(self, text: str, number: int) -> str:
        """`text` of file `number`, with the lines it names as the reader counts them."""

        def place(match: re.Match[str]) -> str:
            line = int(match[1])
            there = self.file(line)
            of = "" if there == number else f" of {self._names[there]}"
            return f"{self._files[there].spoken(self.line(line))}{of}"

        # The further lines of a note are the file's already.
        return re.sub(r"\b(?<!also )line (\d+)", place, text)
