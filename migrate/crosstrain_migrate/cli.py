"""The `migrate` command: options in, an exit code out. Everything heavy is imported when it is needed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from crosstrain_migrate import __version__
from crosstrain_migrate.outcome import FailOn, Mode
from crosstrain_migrate.sources import STDIN, Unusable

if TYPE_CHECKING:
    from crosstrain_migrate.command import Request
    from crosstrain_migrate.outcome import Outcome
    from crosstrain_migrate.proof import Settings

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


class Format(str, Enum):
    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    MARKDOWN = "markdown"
    HTML = "html"


class Snippet(str, Enum):
    GITHUB_ACTIONS = "github-actions"
    PRE_COMMIT = "pre-commit"


class Data(str, Enum):
    REAL = "real"
    SYNTHETIC = "synthetic"


class Backend(str, Enum):
    """Values of `--verify-backend`."""

    TORCH = "torch"
    XLA = "xla"


class Runtime(str, Enum):
    CROSSTRAIN = "crosstrain"
    ACCELERATE = "accelerate"


def _option(text: str, *names: str, metavar: str | None = None) -> object:
    return typer.Option(*names, help=text, metavar=metavar, show_default=False)


Paths = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PATHS", help="Scripts, notebooks, directories, or - for standard input."),
]
Write = Annotated[bool, _option("Rewrite the files, all or none; --undo takes it back.", "--write")]
Check = Annotated[bool, _option("Only say what would change; exit code 1 if anything.", "--check")]
Diff = Annotated[
    bool | None, _option("Show the diff (default: unless --write or --check).", "--diff/--no-diff")
]
Select = Annotated[
    list[str] | None, _option("Only rules with these codes or prefixes: CT1,CT203.", metavar="CODES")
]
Ignore = Annotated[
    list[str] | None, _option("Leave out rules with these codes or prefixes.", metavar="CODES")
]
Extend = Annotated[list[str] | None, _option("Add rules to what is selected.", metavar="CODES")]
OutputFormat = Annotated[Format, _option("How to report (default: text).")]
Output = Annotated[Path | None, _option("Write the report to this file.", metavar="FILE")]
RuntimeName = Annotated[Runtime | None, _option("What migrated scripts import (default: crosstrain).")]
Follow = Annotated[
    bool | None, _option("Rewrite local modules that need it, too (default).", "--follow/--no-follow")
]
ConfigFile = Annotated[Path | None, _option("Read this file, not the nearest pyproject.toml.", "--config")]
Fail = Annotated[
    list[FailOn] | None, _option("Exit with 1 on these, not the default; repeatable.", "--fail-on")
]
NoCache = Annotated[bool, _option("Neither use nor keep results of earlier runs.", "--no-cache")]
Explain = Annotated[str | None, _option("Explain a rule.", metavar="CODE")]
ExplainRoles = Annotated[
    bool, _option("Say what each value of PATHS is in training, and how that is known.", "--explain-roles")
]
ListRules = Annotated[
    bool, _option("List the rules; with --output-format markdown or html, all pages.", "--list-rules")
]
Emit = Annotated[Snippet | None, _option("Print a file that runs the check in CI.")]
Undo = Annotated[bool, _option("Take back the last write below PATHS (default: here).", "--undo")]
Version = Annotated[bool, _option("Show the version.", "--version")]
Verify = Annotated[
    bool,
    _option(
        "RUN the script before and after on the CPU, in a copy, and compare; its arguments after --.",
        "--verify",
    ),
]
VerifySteps = Annotated[int, typer.Option(min=1, help="Compare so many optimizer steps.")]
VerifyProcesses = Annotated[str, typer.Option(help="Numbers of processes to try.", metavar="N,N")]
VerifyTimeout = Annotated[float, typer.Option(min=1, help="Seconds for each run.")]
VerifyData = Annotated[
    Data,
    typer.Option(help="synthetic: torchvision data sets whose files are missing become small stand-ins."),
]
VerifyBackend = Annotated[
    Backend, typer.Option(help="xla: train once more on XLA's CPU client, and count what is compiled.")
]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What the command line says. None and empty: the configuration file is asked."""

    paths: list[Path]
    mode: Mode
    config_file: Path | None
    runtime: Runtime | None
    follow: bool | None
    select: tuple[str, ...]
    ignore: tuple[str, ...]
    extend: tuple[str, ...]
    cache: bool


@dataclass(frozen=True, slots=True)
class _Showing:
    """Where the report goes, and what ends a run with 1."""

    format: Format
    output: Path | None
    diff: bool
    fail_on: frozenset[FailOn]


class _Command(TyperCommand):
    """With --verify, what follows -- are the script's arguments and not paths."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, rest = args, []
        if "--" in args and "--verify" in args[: args.index("--")]:
            place = args.index("--")
            own, rest = args[:place], args[place + 1 :]
        ctx.obj = tuple(rest)
        return super().parse_args(ctx, own)


@app.command(cls=_Command, context_settings={"help_option_names": ["-h", "--help"]})
def migrate(
    context: typer.Context,
    paths: Paths = None,
    write: Write = False,
    check: Check = False,
    diff: Diff = None,
    select: Select = None,
    ignore: Ignore = None,
    extend_select: Extend = None,
    output_format: OutputFormat = Format.TEXT,
    output: Output = None,
    runtime: RuntimeName = None,
    follow: Follow = None,
    config_file: ConfigFile = None,
    fail_on: Fail = None,
    no_cache: NoCache = False,
    explain: Explain = None,
    explain_roles: ExplainRoles = False,
    list_rules: ListRules = False,
    emit: Emit = None,
    undo: Undo = False,
    verify: Verify = False,
    verify_steps: VerifySteps = 20,
    verify_processes: VerifyProcesses = "1,2",
    verify_timeout: VerifyTimeout = 300.0,
    verify_data: VerifyData = Data.REAL,
    verify_backend: VerifyBackend = Backend.TORCH,
    version: Version = False,
) -> None:
    """Rewrite plain PyTorch training scripts so that they train on any number of processes.

    Without --write nothing is changed: the diff goes to standard output, everything else to standard error.

    Exit codes: 0 done, or nothing to do; 1 --check found something to do, or a training script could not be
    converted, or --verify found a difference; 2 an option, the configuration or a file could not be used.
    """
    if version:
        typer.echo(f"migrate (crosstrain) {__version__}")
    elif explain is not None or list_rules:
        _end(_put_rules(explain, output_format, output))
    elif explain_roles:
        _end(_put_roles(_checked(paths or [], write=write, check=check), output))
    elif emit is not None:
        from crosstrain_migrate.pages import ci_snippet

        typer.echo(ci_snippet(emit.value), nl=False)
    elif undo:
        _end(_undo(paths or [Path()]))
    else:
        asked = _Asked(
            paths=_checked(paths or [], write=write, check=check),
            mode=Mode.WRITE if write else Mode.CHECK if check else Mode.PREVIEW,
            config_file=config_file,
            runtime=runtime,
            follow=follow,
            select=_codes(select),
            ignore=_codes(ignore),
            extend=_codes(extend_select),
            cache=not no_cache,
        )
        request, showing = _configured(asked, output_format, output, diff, fail_on)
        if verify:
            from crosstrain_migrate.proof import Settings

            limits = (verify_steps, verify_processes, verify_timeout)
            arguments = tuple(context.obj or ())
            _end(
                _verify(
                    request, showing, Settings(*limits, verify_data.value, verify_backend.value, arguments)
                )
            )
        on_stdin = asked.paths == [STDIN]
        _end(_migrate_stdin(request, showing) if on_stdin else _migrate_files(request, showing))


def _verify(request: Request, showing: _Showing, settings: Settings) -> int:
    """Migrate in memory, compare, show both; --write then writes what was proven, and nothing else."""
    from crosstrain_migrate.command import run
    from crosstrain_migrate.engine import migrate_text
    from crosstrain_migrate.proof import prove

    if len(request.paths) != 1 or not request.paths[0].is_file():
        raise typer.BadParameter("--verify runs one script: name it", param_hint="PATHS")
    outcome = run(replace(request, mode=Mode.PREVIEW), migrate_text)
    text = showing.format is Format.TEXT and showing.output is None
    if text:
        code = _show(outcome, showing)
        if outcome.errors:
            return code
        sys.stdout.flush()
    try:
        proof = prove(outcome, request.paths[0], settings, quiet=not text)
    except Unusable as problem:
        return max(_failed(problem), 0 if text else _show(outcome, showing))
    if not text:
        code = _show(replace(outcome, proof=proof.report), showing)
    if proof.code == 0 and request.mode is Mode.WRITE:
        return _migrate_files(request, replace(showing, diff=False, format=Format.TEXT, output=None))
    return max(code, proof.code)


_DEFAULT_FAIL_ON: dict[Mode, tuple[FailOn, ...]] = {
    Mode.PREVIEW: (),
    Mode.CHECK: (FailOn.EDITS, FailOn.REFUSED),
    Mode.WRITE: (FailOn.REFUSED,),
}


def _checked(paths: list[Path], *, write: bool, check: bool) -> list[Path]:
    if not paths:
        raise typer.BadParameter("name a script, a directory, or - for standard input", param_hint="PATHS")
    if write and check:
        raise typer.BadParameter("--check changes nothing; leave out one of the two", param_hint="--write")
    if STDIN in paths and len(paths) > 1:
        raise typer.BadParameter("- (standard input) stands alone", param_hint="PATHS")
    return paths


def _configured(
    asked: _Asked, shown_as: Format, output: Path | None, diff: bool | None, fail_on: list[FailOn] | None
) -> tuple[Request, _Showing]:
    """The command line over the configuration file over the defaults; or an exit with what is wrong with them."""
    from crosstrain_migrate.command import Request
    from crosstrain_migrate.config import load
    from crosstrain_migrate.engine import Options

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
        advice=True,
    )
    _check_codes((*chosen, *extended, *options.ignore))
    configured = None if config.fail_on is None else [FailOn(name) for name in config.fail_on]
    showing = _Showing(
        shown_as,
        output,
        diff if diff is not None else asked.mode is Mode.PREVIEW and asked.paths != [STDIN],
        frozenset(fail_on or configured or _DEFAULT_FAIL_ON[asked.mode]),
    )
    return Request(tuple(asked.paths), options, asked.mode, config.exclude, asked.cache), showing


def _codes(given: Iterable[str] | None) -> tuple[str, ...]:
    return tuple(code.strip() for item in given or () for code in item.split(",") if code.strip())


def _check_codes(codes: Iterable[str]) -> None:
    codes = tuple(codes)
    if not codes:
        return
    from crosstrain_migrate.pages import rule_names

    known = rule_names()
    for code in codes:
        if not any(one.startswith(code) for one in known):
            raise typer.BadParameter(f"no rule has the code {code!r}; migrate --list-rules shows them all")


def _migrate_files(request: Request, showing: _Showing) -> int:
    from crosstrain_migrate import transaction
    from crosstrain_migrate.command import run
    from crosstrain_migrate.engine import migrate_text

    for restored in transaction.recover():
        for file in restored.files:
            _say(f"{file}: put back; an earlier migrate was killed while writing")
        for file in restored.left_alone:
            _say(
                f"{file}: left as it is; an earlier migrate was killed while writing, and it was edited since"
            )
    outcome = run(request, migrate_text)
    return _show(outcome, showing)


def _migrate_stdin(request: Request, showing: _Showing) -> int:
    from crosstrain_migrate.command import run_stdin
    from crosstrain_migrate.engine import migrate_text

    try:
        file, outcome = run_stdin(sys.stdin.buffer, request.mode, request.options, migrate_text)
    except Unusable as problem:
        return _failed(problem)
    if showing.format is Format.TEXT and not showing.diff and request.mode is not Mode.CHECK:
        sys.stdout.buffer.write(file.after)
    return _show(outcome, showing)


def _show(outcome: Outcome, showing: _Showing) -> int:
    from crosstrain_migrate import reports
    from crosstrain_migrate.reports.text import messages

    try:
        if showing.format is Format.TEXT and showing.output is None:
            if showing.diff:
                reports.print_diff(outcome)
        else:
            _put(reports.render(outcome, showing.format.value), showing.output)
            if showing.format is Format.GITHUB:
                reports.append_github_summary(outcome)
            if showing.diff and showing.output is not None and showing.format is not Format.TEXT:
                reports.print_diff(outcome)
    except OSError as error:
        _say(f"error: {showing.output}: cannot be written: {error.strerror or error}")
        return 2
    for message in messages(outcome):
        _say(message)
    return outcome.exit_code(showing.fail_on)


def _put(report: bytes, output: Path | None) -> None:
    if output is None:
        sys.stdout.buffer.write(report)
        sys.stdout.buffer.flush()
    else:
        output.write_bytes(report)


def _undo(places: list[Path]) -> int:
    from crosstrain_migrate import transaction
    from crosstrain_migrate.outcome import display_name

    transaction.recover()
    try:
        files = transaction.undo(places)
    except Unusable as problem:
        return _failed(problem)
    for file in files:
        _say(f"put back {display_name(file)}")
    return 0


def _put_rules(code: str | None, shown_as: Format, output: Path | None) -> int:
    """One rule's page, or all: as a list, or as a document in Markdown or HTML."""
    from crosstrain_migrate import pages

    documents = {Format.TEXT: pages.rule_table, Format.MARKDOWN: pages.markdown, Format.HTML: pages.html}
    if shown_as not in documents:
        known = ", ".join(one.value for one in documents)
        raise typer.BadParameter(f"rules can be shown as {known}", param_hint="--output-format")
    text = documents[shown_as]() if code is None else _rule_page(code)
    try:
        _put(text.encode(), output)
    except OSError as error:
        _say(f"error: {output}: cannot be written: {error.strerror or error}")
        return 2
    return 0


def _put_roles(paths: list[Path], output: Path | None) -> int:
    from crosstrain_migrate.understood import explain_roles

    try:
        _put(explain_roles(paths).encode(), output)
    except Unusable as problem:
        return _failed(problem)
    except OSError as error:
        _say(f"error: {output}: cannot be written: {error.strerror or error}")
        return 2
    return 0


def _rule_page(code: str) -> str:
    from crosstrain_migrate.pages import rule_page

    page = rule_page(code)
    if page is None:
        raise typer.BadParameter(
            f"no rule has the code {code!r}; --list-rules shows them all", param_hint="--explain"
        )
    return page


def _failed(problem: Unusable) -> int:
    _say(f"error: {problem.error}")
    return 2


def _say(message: str) -> None:
    typer.echo(message.encode("utf-8", "backslashreplace").decode(), err=True)


def _end(code: int) -> None:
    raise typer.Exit(code)


def main() -> None:
    """The console script."""
    if hasattr(signal, "SIGPIPE"):
        # A reader that has gone (`migrate . | head`) ends us quietly, as it ends `git diff`.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    app()


if __name__ == "__main__":
    main()
