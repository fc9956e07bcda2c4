"""One run of the tool: find, read, migrate, write. `report` shows the `Outcome`."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.files.agreement import agreed
from crosstrain_migrate.files.discovery import discover
from crosstrain_migrate.files.import_graph import is_script, only_registers
from crosstrain_migrate.files.may_train import may_train
from crosstrain_migrate.files.progress import Progress
from crosstrain_migrate.files.project import units
from crosstrain_migrate.files.reading import decode
from crosstrain_migrate.files.sources import NOTEBOOK, STDIN, Source, Unusable, read_bytes
from crosstrain_migrate.files.workers import Migrate, checked, collect_rarely, migrate_all, migrate_one
from crosstrain_migrate.outcome import Migrated, Outcome
from crosstrain_migrate.results import InputError
from crosstrain_migrate.syntax.problems import UNPARSABLE, syntax_problem
from crosstrain_migrate.syntax.program import parses

if TYPE_CHECKING:
    from crosstrain_migrate.results import Options


_Found = tuple[Path, bytes, Path]  # a file as it was named, its bytes, and the file itself


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line and the configuration came to."""

    paths: tuple[Path, ...]
    options: Options
    mode: Mode
    exclude: tuple[str, ...] = ()
    cache: bool = True


def run(request: Request, migrate: Migrate) -> Outcome:
    """Migrates every file that the request means; writes them, all or none, in write mode."""
    progress = Progress()
    try:
        return _run(request, migrate, progress)
    finally:
        progress.clear()


def _run(request: Request, migrate: Migrate, progress: Progress) -> Outcome:
    collect_rarely()
    read, guests, others = _read_all(request, progress)
    errors = [one for one in read if isinstance(one, InputError)]
    # Alone, a guest holds nothing to migrate; whether it even parses is none of our business.
    found = [
        unit
        for unit in units((one for one in [*read, *guests] if isinstance(one, Source)), progress)
        if len(unit.files) > 1 or unit.whole not in guests
    ]
    programs: list[list[Migrated]] = []
    results = _results([unit.whole for unit in found], request, migrate, progress)
    for unit, file in zip(found, results, strict=True):
        if isinstance(file, InputError):
            errors.append(file)
        else:
            programs.append(unit.split(file))
    done = [checked(file) for file in agreed(programs, request.options.follow)]
    errors += [file for file in done if isinstance(file, InputError)]
    asked = {one.path: number for number, one in enumerate(read)}
    errors.sort(key=lambda error: asked.get(error.path, len(asked)))
    migrated = [file for file in done if isinstance(file, Migrated)]
    files = [file for file in migrated if file.result.changed or file.result.findings or file.result.trains]
    # A file that several scripts import, or that holds no training itself, is one file.
    touched = {file.source.target for file in migrated if file.result.changed or file.result.refused}
    previewed_at = {
        *(target for _, _, target in others),
        *(guest.target for guest in guests),
        *(file.source.target for file in migrated),
    }
    untouched = len(previewed_at - touched)
    parts = {member.target for unit in found for member in unit.files[:-1]}
    idle = [
        file
        for file in migrated
        if file.source.path in request.paths and file not in files and file.source.target not in parts
    ]
    if request.mode is Mode.WRITE:
        try:
            _write(files)
        except Unusable as problem:
            errors.append(problem.error)
            files = []
    said = (tuple(files), tuple(errors), untouched, request.mode, request.options.runtime)
    return Outcome(*said, idle=tuple(idle), broken=tuple(_broken(others)))


def _read_all(
    request: Request, progress: Progress
) -> tuple[list[Source | InputError], list[Source], list[_Found]]:
    """The files to look into (or why one cannot be), those that may train through what they import, and all that hold
    no training code themselves.

    A file asked for by name is always looked into, so that it gets an answer.
    """
    read: list[Source | InputError] = []
    others: list[_Found] = []
    trains = False
    for found in progress.over(discover(request.paths, request.exclude), "{} files read"):
        if isinstance(found, InputError):
            read.append(found)
            continue
        try:
            data, target = read_bytes(found.path)
            if found.named or may_train(data):
                read.append(decode(found.path, data, target))
                trains = trains or may_train(data)
            else:
                others.append((found.path, data, target))
        except Unusable as problem:
            read.append(problem.error)
    # A script may leave the training to a module that it imports.
    runs = [
        one
        for one in others
        if one[0].suffix == NOTEBOOK or (is_script(one[1]) and not only_registers(one[1], one[0].name))
    ]
    scripts = [one for one in runs if trains or b"torch" in one[1]]
    guests: list[Source] = []
    for path, data, target in scripts:
        with contextlib.suppress(Unusable):  # nobody asked for it by name
            guests.append(decode(path, data, target))
    return read, guests, others


def _broken(others: list[_Found]) -> Iterator[InputError]:
    """Those that mention torch and do not parse: nobody asked for them by name, but they may have been meant."""
    for path, data, target in others:
        if b"torch" not in data or path.suffix == NOTEBOOK:
            continue
        try:
            source = decode(path, data, target)
        except Unusable as problem:
            yield problem.error
            continue
        if parses(source.text):
            continue
        try:
            ast.parse(source.text)
        except UNPARSABLE as error:
            yield syntax_problem(path, source.text, error)


def _results(
    sources: list[Source], request: Request, migrate: Migrate, progress: Progress
) -> Iterator[Migrated | InputError]:
    """Each file's result, in order: from an earlier run where the text, the options and the tool are the same."""
    if not request.cache:
        yield from migrate_all(sources, request.options, migrate, progress)
        return
    from crosstrain_migrate.files.cache import Cache

    cache = Cache(repr((request.options, migrate.__module__, migrate.__qualname__)))
    known = [cache.get(source.path, source.text) for source in sources]
    fresh = migrate_all(
        [source for source, result in zip(sources, known, strict=True) if result is None],
        request.options,
        migrate,
        progress,
    )
    for source, result in zip(sources, known, strict=True):
        if result is not None:
            yield checked(Migrated(source, result))
            continue
        file = next(fresh)
        if isinstance(file, Migrated):
            cache.put(file.result)
        yield file
    cache.remove_old()


def run_stdin(stream: BinaryIO, mode: Mode, options: Options, migrate: Migrate) -> tuple[Migrated, Outcome]:
    """Migrates one text from a stream. Raises `Unusable` where it is not Python text."""
    file = migrate_one(decode(STDIN, stream.read()), options, migrate)
    if isinstance(file, InputError):
        raise Unusable(file)
    result = file.result
    untouched = int(not (result.changed or result.refused))
    idle = () if result.changed or result.findings or result.trains else (file,)
    return file, Outcome((file,), (), untouched, mode, options.runtime, idle=idle)


def _write(files: list[Migrated]) -> None:
    from crosstrain_migrate.files import transaction

    transaction.write(
        [
            transaction.Replacement(file.source.path, file.source.target, file.source.data, file.after)
            for file in files
            if file.result.changed
        ]
    )
