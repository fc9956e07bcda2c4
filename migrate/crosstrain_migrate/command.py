"""One run of the tool: find, read, migrate, write. `reports` shows the `Outcome`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from crosstrain_migrate import transaction
from crosstrain_migrate.discovery import Found, discover
from crosstrain_migrate.outcome import Migrated, Mode, Outcome
from crosstrain_migrate.results import FileResult, InputError
from crosstrain_migrate.sources import (
    STDIN,
    Source,
    Unusable,
    decode,
    may_train,
    read,
    read_bytes,
    syntax_problem,
)

if TYPE_CHECKING:
    from crosstrain_migrate.engine import Options

Migrate = Callable[[Path, str, "Options"], FileResult]


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line and the configuration came to."""

    paths: tuple[Path, ...]
    options: Options
    mode: Mode
    exclude: tuple[str, ...] = ()


def run(request: Request, migrate: Migrate) -> Outcome:
    """Migrates every file that the request means; writes them, all or none, in write mode."""
    files: list[Migrated] = []
    errors: list[InputError] = []
    untouched = 0
    for found in discover(request.paths, request.exclude):
        try:
            if isinstance(found, InputError):
                raise Unusable(found)
            file = _examine(found, request.options, migrate)
        except Unusable as problem:
            errors.append(problem.error)
            continue
        result = None if file is None else file.result
        if file is not None and result is not None and (result.changed or result.findings or result.trains):
            files.append(file)
        untouched += result is None or not (result.changed or result.refused)
    if request.mode is Mode.WRITE:
        try:
            _write(files)
        except Unusable as problem:
            errors.append(problem.error)
            return Outcome((), tuple(errors), untouched, request.mode, request.options.runtime)
    return Outcome(tuple(files), tuple(errors), untouched, request.mode, request.options.runtime)


def run_stdin(stream: BinaryIO, mode: Mode, options: Options, migrate: Migrate) -> tuple[Migrated, Outcome]:
    """Migrates one text from a stream. Raises `Unusable` where it is not Python text."""
    file = _migrate(decode(STDIN, stream.read()), options, migrate)
    untouched = int(not (file.result.changed or file.result.refused))
    return file, Outcome((file,), (), untouched, mode, options.runtime)


def _examine(found: Found, options: Options, migrate: Migrate) -> Migrated | None:
    """None for a file that holds no training code and was not asked for by name. Raises `Unusable`."""
    if not found.named:
        data, target = read_bytes(found.path)
        if not may_train(data):
            return None
        return _migrate(decode(found.path, data, target), options, migrate)
    return _migrate(read(found.path), options, migrate)


def _migrate(source: Source, options: Options, migrate: Migrate) -> Migrated:
    try:
        result = migrate(source.path, source.text, options)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise Unusable(syntax_problem(source.path, source.text, error)) from error
    except Exception as error:
        # The one place that catches everything: a defect that one file brings out must not cost the others.
        traceback.print_exc(file=sys.stderr)
        reason = f"migrate failed on this file ({type(error).__name__}: {error}); it was not changed"
        raise Unusable(
            InputError(source.path, reason, "Please report it with the traceback above.")
        ) from error
    if result.error is not None:
        raise Unusable(result.error)
    file = Migrated(source, result)
    _ = file.after  # must be writable in the file's own encoding, or the file is not usable
    return file


def _write(files: list[Migrated]) -> None:
    transaction.write(
        [
            transaction.Replacement(file.source.path, file.source.target, file.source.data, file.after)
            for file in files
            if file.result.changed
        ]
    )
