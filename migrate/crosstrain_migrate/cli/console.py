"""What one call of `migrate` does, once its options are read: each function here is one thing it can be asked for.

`commands` reads the options; it loads this module only when there is something to do.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from crosstrain_migrate.choices import FailOn, Format, Mode, Runtime, Snippet
from crosstrain_migrate.files.sources import STDIN, Unusable

if TYPE_CHECKING:
    from crosstrain_migrate.outcome import Outcome
    from crosstrain_migrate.verify import Settings

    from .run import Request


@dataclass(frozen=True, slots=True)
class Arguments:
    """What the command line says. None and empty: the configuration file is asked."""

    paths: list[Path]
    mode: Mode
    config_file: Path | None
    runtime: Runtime | None
    follow: bool | None
    strict: bool | None
    todo: bool
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    extend: tuple[str, ...]
    tpu: bool
    cache: bool


@dataclass(frozen=True, slots=True)
class Reporting:
    """Where the report goes, and what ends a run with 1."""

    format: Format
    output: Path | None
    diff: bool
    fail_on: frozenset[FailOn]
    hints: bool = True  # what to do next


def verify(request: Request, showing: Reporting, settings: Settings) -> int:
    """Migrates in memory, compares and reports; --write then writes what was proven, and nothing else."""
    from crosstrain_migrate.engine import migrate_text
    from crosstrain_migrate.report import screen
    from crosstrain_migrate.verify import prove

    from .run import run

    if len(request.paths) != 1 or not request.paths[0].is_file():
        raise typer.BadParameter("--verify runs one script: name one file")
    if not re.fullmatch(r"\d+(,\d+)*", settings.processes):
        raise typer.BadParameter(
            f"{settings.processes}: write numbers separated by commas, such as 1,2",
            param_hint="--verify-processes",
        )
    _check_torch("--verify")
    outcome = run(replace(request, mode=Mode.PREVIEW), migrate_text)
    text = showing.format is Format.TEXT and showing.output is None
    if text:
        code = _show(outcome, replace(showing, hints=False))
        if outcome.errors:
            return code
        sys.stdout.flush()
    try:
        proven, outcome = prove(outcome, request.paths[0], settings, quiet=not text)
    except Unusable as problem:
        return max(_failed(problem), 0 if text else _show(outcome, showing))
    if text:
        hint = "--verify --write" if request.options.observed is not None else "--write"
        shown = hint if proven == 0 and request.mode is not Mode.WRITE else ""
        for message in screen.statuses(outcome, screen.of_stderr(), shown):
            _say(message)
    else:
        code = _show(outcome, showing, proven)
    if proven == 0 and request.mode is Mode.WRITE:
        return _migrate_files(request, replace(showing, diff=False, format=Format.TEXT, output=None))
    return max(code, proven)


def observed(request: Request, file: Path | None, runs: bool, settings: Settings) -> Request:
    """The request with what a run of its script shows: a run now, or the one that a facts file is about."""
    from crosstrain_migrate import observe

    asked = "--observe runs" if runs else "--facts is about"
    if len(request.paths) != 1 or not request.paths[0].is_file():
        raise typer.BadParameter(f"{asked} one script: name one file")
    script = request.paths[0]
    try:
        if runs:
            _check_torch("--observe")
            seen = observe.observe(script, settings)
            if file is not None:
                observe.keep(seen, file)
                _say(f"{file}: what was seen; --facts {file} converts with it without another run")
        else:
            assert file is not None
            seen = observe.read(file, script)
    except Unusable as problem:
        raise typer.Exit(_failed(problem)) from None
    return replace(request, options=replace(request.options, observed=seen))


def _check_torch(option: str) -> None:
    from crosstrain.requirements import missing

    if reason := missing():
        _say(f"error: {option} trains with PyTorch, and {reason}")
        raise typer.Exit(2)


_DEFAULT_FAIL_ON: dict[Mode, tuple[FailOn, ...]] = {
    Mode.PREVIEW: (FailOn.REFUSED,),
    Mode.CHECK: (FailOn.EDITS, FailOn.REFUSED),
    Mode.WRITE: (FailOn.REFUSED,),
}


def checked(paths: list[Path], *, write: bool, check: bool) -> list[Path]:
    if not paths:
        raise typer.BadParameter("name a script, a directory, or - for standard input; see migrate -h")
    if write and check:
        raise typer.BadParameter("--check changes nothing; leave out one of the two", param_hint="--write")
    if STDIN in paths and len(paths) > 1:
        raise typer.BadParameter("- (standard input) stands alone: leave out the other paths")
    return paths


def configured(
    asked: Arguments, shown_as: Format, output: Path | None, diff: bool | None, fail_on: list[FailOn] | None
) -> tuple[Request, Reporting]:
    """The command line over the configuration file over the defaults; or an exit with what is wrong with them."""
    from crosstrain_migrate.results import Options

    from .config import load
    from .run import Request

    try:
        config = load(asked.paths, asked.config_file)
    except Unusable as problem:
        raise typer.Exit(_failed(problem)) from None
    chosen = asked.select or config.select or ()
    extended = (*config.extend_select, *asked.extend)
    options = Options(
        runtime=asked.runtime.value if asked.runtime else config.runtime or Runtime.CROSSTRAIN.value,
        # Without a selection every rule is on already; an addition then only takes back what is ignored.
        select=(*(chosen or ("CT",)), *extended) if chosen or extended else (),
        ignore=(*config.ignore, *asked.ignore),
        follow=asked.follow if asked.follow is not None else config.follow is not False,
        strict=config.strict if asked.strict is None else asked.strict,
        todo=asked.todo,
        advice=asked.tpu,
    )
    _check_codes((*chosen, *extended, *options.ignore))
    configured = None if config.fail_on is None else [FailOn(name) for name in config.fail_on]
    showing = Reporting(
        shown_as,
        output,
        diff if diff is not None else asked.mode is Mode.PREVIEW and asked.paths != [STDIN],
        frozenset(fail_on or configured or _DEFAULT_FAIL_ON[asked.mode]),
    )
    return Request(tuple(asked.paths), options, asked.mode, config.exclude, asked.cache), showing


def codes(given: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(code.strip() for item in given or () for code in item.split(",") if code.strip())


def _check_codes(codes: Iterable[str]) -> None:
    codes = tuple(codes)
    if not codes:
        return
    from crosstrain_migrate.rules.catalogue import titles

    known = titles()
    for code in codes:
        if not any(one.startswith(code) for one in known):
            raise typer.BadParameter(f"no rule has the code {code!r}; migrate --list-rules shows them all")


def convert(request: Request, showing: Reporting) -> int:
    """What is asked without --verify: the diff, the check or the write."""
    on_stdin = list(request.paths) == [STDIN]
    return _migrate_stdin(request, showing) if on_stdin else _migrate_files(request, showing)


def _migrate_files(request: Request, showing: Reporting) -> int:
    from crosstrain_migrate.engine import migrate_text
    from crosstrain_migrate.files import transaction

    from .run import run

    for restored in transaction.recover():
        for file in restored.files:
            _say(f"{file}: put back; an earlier migrate was killed while writing")
        for file in restored.left_alone:
            left = "left as it is; an earlier migrate was killed while writing, and it was edited since"
            _say(f"{file}: {left}")
    outcome = run(request, migrate_text)
    return _show(outcome, showing)


def _migrate_stdin(request: Request, showing: Reporting) -> int:
    from crosstrain_migrate.engine import migrate_text

    from .run import run_stdin

    try:
        file, outcome = run_stdin(sys.stdin.buffer, request.mode, request.options, migrate_text)
    except Unusable as problem:
        return _failed(problem)
    if showing.format is Format.TEXT and not showing.diff and request.mode is not Mode.CHECK:
        try:
            _put(file.after, None)
        except OSError as error:
            return _not_written(None, error)
    return _show(outcome, showing)


def _show(outcome: Outcome, showing: Reporting, least: int = 0) -> int:
    """The diff and what there is to say; a report of its own, and then the summary alone.

    Returns the exit code, which is at least `least`.
    """
    from crosstrain_migrate import report
    from crosstrain_migrate.report import github, screen

    shown = screen.of_stderr()
    is_text = showing.format is Format.TEXT and showing.output is None
    outcome = replace(outcome, code=max(outcome.exit_code(showing.fail_on), least))
    try:
        if is_text and showing.diff:
            report.print_diff(outcome)
        elif not is_text:
            _put(report.render(outcome, showing.format.value), showing.output)
        if showing.format is Format.GITHUB:
            github.append_summary(outcome)
    except OSError as error:
        return _not_written(showing.output, error)
    if is_text:
        said = list(screen.messages(outcome, shown, hints=showing.hints))
    else:
        said = [*screen.problems(outcome, shown), outcome.summary()]
    for message in said:
        _say(message)
    return outcome.code


def _put(report: bytes, output: Path | None) -> None:
    if output is None:
        sys.stdout.buffer.write(report)
        sys.stdout.buffer.flush()
    else:
        output.write_bytes(report)


def undo(places: list[Path]) -> int:
    from crosstrain_migrate.files import transaction
    from crosstrain_migrate.outcome import display_name

    transaction.recover()
    try:
        files = transaction.undo(places)
    except Unusable as problem:
        return _failed(problem)
    for file in files:
        _say(f"put back {display_name(file)}")
    return 0


def put_rules(code: str | None, shown_as: Format, output: Path | None) -> int:
    """One rule's page, or all: as a list, or as a document in Markdown or HTML."""
    from crosstrain_migrate.report import rule_pages

    documents = {
        Format.TEXT: rule_pages.rule_table,
        Format.MARKDOWN: rule_pages.markdown,
        Format.HTML: rule_pages.html,
    }
    if shown_as not in documents:
        known = ", ".join(one.value for one in documents)
        raise typer.BadParameter(f"rules can be shown as {known}", param_hint="--output-format")
    text = documents[shown_as]() if code is None else rule_pages.rule_page(code)
    if text is None:
        reason = f"no rule has the code {code!r}; --list-rules shows them all"
        raise typer.BadParameter(reason, param_hint="--explain")
    return _put_text(text, output)


def put_snippet(which: Snippet, origin: str | None) -> int:
    from crosstrain_migrate.report.snippets import ci_snippet

    try:
        text = ci_snippet(which.value, origin)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--emit-from") from None
    typer.echo(text, nl=False)
    return 0


def put_roles(paths: list[Path], output: Path | None) -> int:
    from .explain_roles import explain_roles

    try:
        return _put_text(explain_roles(paths), output)
    except Unusable as problem:
        return _failed(problem)


def _put_text(text: str, output: Path | None) -> int:
    try:
        _put(text.encode(), output)
    except OSError as error:
        return _not_written(output, error)
    return 0


def _failed(problem: Unusable) -> int:
    _say(f"error: {problem.error}")
    return 2


def _not_written(output: Path | None, error: OSError) -> int:
    name = error.filename or output or "standard output"
    if output is None:  # Python would try again when it ends, and fail then
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    _say(f"error: {name}: cannot be written: {error.strerror or error}")
    return 2


def _say(message: str) -> None:
    """One message on standard error; `screen` has decided about its colours."""
    typer.echo(message.encode("utf-8", "backslashreplace").decode(), err=True, color=True)
