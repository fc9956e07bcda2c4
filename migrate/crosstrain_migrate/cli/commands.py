"""The `migrate` command: options in, an exit code out. Everything heavy is imported when it is needed."""

from __future__ import annotations

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from crosstrain.command_line import Command, Version

from crosstrain_migrate.choices import Backend, Data, FailOn, Format, Mode, Runtime, Snippet

app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)


def _option(text: str, *names: str, metavar: str | None = None) -> object:
    return typer.Option(*names, help=text, metavar=metavar, show_default=False)


def _as_given(read: Callable[[Any, Any], Any], parameter: Any, context: Any, value: Any) -> Any:
    """The value of an option; `read` it only where that can change it.

    Whatever typer reads, it reads with pydantic, which takes 0.1 s to load. A default has its type already, and PATHS are
    text until `migrate` has them.
    """
    source = context.get_parameter_source(parameter.name)
    default = source is not None and source.name == "DEFAULT"
    if not default and parameter.name != "paths":
        return read(context, value)
    many = parameter.nargs != 1 or getattr(parameter, "multiple", False)
    return () if many and value is None else value


class _Command(Command):
    """With --verify or --observe, what follows -- are the script's arguments and not paths."""

    speaker = "error"

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if "process_value" not in vars(parameter):
                parameter.process_value = partial(_as_given, parameter.process_value, parameter)
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own, rest = args, []
        if "--" in args and {"--verify", "--observe"} & set(args[: args.index("--")]):
            place = args.index("--")
            own, rest = args[:place], args[place + 1 :]
        ctx.obj = tuple(rest)
        return super().parse_args(ctx, own)


@app.command(
    cls=_Command,
    context_settings={"help_option_names": ["-h", "--help"]},
    short_help="Rewrite plain training scripts for many processes.",
)
def migrate(
    context: typer.Context,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATHS...", help="Scripts, notebooks, directories, or - for standard input."),
    ] = None,
    write: Annotated[
        bool, _option("Rewrite the files, all or none; --undo takes it back.", "--write")
    ] = False,
    check: Annotated[
        bool, _option("Only say what would change; exit code 1 if anything.", "--check")
    ] = False,
    diff: Annotated[
        bool | None, _option("Show the diff (default: unless --write or --check).", "--diff/--no-diff")
    ] = None,
    select: Annotated[
        list[str] | None, _option("Only rules with these codes or prefixes: CT1,CT203.", metavar="CODES")
    ] = None,
    ignore: Annotated[
        list[str] | None, _option("Leave out rules with these codes or prefixes.", metavar="CODES")
    ] = None,
    extend_select: Annotated[
        list[str] | None, _option("Add rules to what is selected.", metavar="CODES")
    ] = None,
    output_format: Annotated[Format, _option("How to report (default: text).")] = Format.TEXT,
    output: Annotated[Path | None, _option("Write the report to this file.", metavar="FILE")] = None,
    runtime: Annotated[Runtime | None, _option("What migrated scripts import (default: crosstrain).")] = None,
    follow: Annotated[
        bool | None, _option("Rewrite local modules that need it, too (default).", "--follow/--no-follow")
    ] = None,
    strict: Annotated[
        bool | None, _option("Refuse where anything would be assumed.", "--strict/--no-strict")
    ] = None,
    todo: Annotated[
        bool,
        _option("Mark what a refused script leaves to you and, where it can, convert the rest.", "--todo"),
    ] = False,
    config_file: Annotated[
        Path | None, _option("Read this file, not the nearest pyproject.toml.", "--config", metavar="FILE")
    ] = None,
    fail_on: Annotated[
        list[FailOn] | None,
        _option(
            "Exit with 1 on these, not the default; repeatable.",
            "--fail-on",
            metavar="|".join(one.value for one in FailOn),
        ),
    ] = None,
    tpu: Annotated[bool, _option("Also say what would be slow or fail on a TPU.", "--tpu")] = False,
    no_cache: Annotated[bool, _option("Neither use nor keep results of earlier runs.", "--no-cache")] = False,
    explain: Annotated[str | None, _option("Explain a rule.", metavar="CODE")] = None,
    explain_roles: Annotated[
        bool,
        _option("Say what each value of PATHS is in training, and how that is known.", "--explain-roles"),
    ] = False,
    list_rules: Annotated[
        bool, _option("List the rules; with --output-format markdown or html, all pages.", "--list-rules")
    ] = False,
    emit: Annotated[Snippet | None, _option("Print a file that runs the check in CI.")] = None,
    emit_from: Annotated[
        str | None,
        _option(
            "With --emit, where CI gets Crosstrain from: git+URL@REVISION, a wheel, or crosstrain==VERSION (default: where "
            "this one was installed from).",
            metavar="ORIGIN",
        ),
    ] = None,
    undo: Annotated[bool, _option("Take back the last write below PATHS (default: here).", "--undo")] = False,
    observe: Annotated[
        bool,
        _option(
            "RUN the script for a few steps on the CPU, in a copy, and convert with what is seen; its arguments after --.",
            "--observe",
        ),
    ] = False,
    facts: Annotated[
        Path | None,
        _option(
            "With --observe, write what was seen to this file; without, convert with it.",
            "--facts",
            metavar="FILE",
        ),
    ] = None,
    verify: Annotated[
        bool,
        _option(
            "RUN the script before and after on the CPU, in a copy, and compare; its arguments after --.",
            "--verify",
        ),
    ] = False,
    verify_steps: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of optimizer steps to compare.")
    ] = 20,
    verify_processes: Annotated[
        str, typer.Option(help="Numbers of processes to try.", metavar="N,N")
    ] = "1,2",
    verify_timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="Time limit of each run, also with --observe.")
    ] = 300.0,
    verify_data: Annotated[
        Data,
        typer.Option(
            help="synthetic: torchvision data sets whose files are missing become small stand-ins, also with --observe."
        ),
    ] = Data.REAL,
    verify_backend: Annotated[
        Backend, typer.Option(help="xla: train once more on XLA's CPU client, and count what is compiled.")
    ] = Backend.TORCH,
    version: Version = False,
) -> None:
    """Rewrite plain PyTorch training scripts so that they train on any number of processes.

    Without --write nothing is changed: the diff goes to standard output, everything else to standard error.

    Exit codes: 0 done, with or without assumptions, or nothing to do; 1 --check found something to do, or a training
    script was refused, or --verify found a difference; 2 an option, the configuration or a file could not be used.
    """
    from . import console

    named = [Path(path) for path in paths or ()]
    if explain is not None or list_rules:
        _end(console.put_rules(explain, output_format, output))
    if explain_roles:
        _end(console.put_roles(console.checked(named, write=write, check=check), output))
    if emit is not None:
        _end(console.put_snippet(emit, emit_from))
    if undo:
        _end(console.undo(named or [Path()]))
    asked = console.Arguments(
        paths=console.checked(named, write=write, check=check),
        mode=Mode.WRITE if write else Mode.CHECK if check else Mode.PREVIEW,
        config_file=config_file,
        runtime=runtime,
        follow=follow,
        strict=strict,
        todo=todo,
        select=console.codes(select),
        ignore=console.codes(ignore),
        extend=console.codes(extend_select),
        tpu=tpu,
        cache=not no_cache,
    )
    request, showing = console.configured(asked, output_format, output, diff, fail_on)
    if not (observe or verify or facts is not None):
        _end(console.convert(request, showing))
    from crosstrain_migrate.verify import Settings

    limits = (verify_steps, verify_processes, verify_timeout)
    settings = Settings(*limits, verify_data.value, verify_backend.value, tuple(context.obj or ()))
    if observe or facts is not None:
        request = console.observed(request, facts, observe, settings)
    _end(console.verify(request, showing, settings) if verify else console.convert(request, showing))


def _end(code: int) -> NoReturn:
    raise typer.Exit(code)


def main() -> None:
    """The console script."""
    if hasattr(signal, "SIGPIPE"):
        # A reader that has gone (`migrate . | head`) ends us quietly, as it ends `git diff`.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    app()
