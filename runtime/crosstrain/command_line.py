"""Shared by the commands `migrate` and `crosstrain`: `--version`, help without Python's type names, and usage errors.

A usage error is one line on standard error and exit code 2. Imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, cast

import typer
from typer.core import TyperCommand, TyperGroup

from crosstrain.version import __version__

# Typer's own since 0.2x, click's before: its public subclass knows which.
_UsageError = cast("type[Exception]", typer.BadParameter.__base__)


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"crosstrain {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", help="Show the version.", callback=_say_version, is_eager=True)
]


class Command(TyperCommand):
    """A command whose usage errors are one line. It begins with ``speaker``, or if that is empty the command's name."""

    speaker: ClassVar[str] = ""

    def get_params(self, ctx: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(ctx)
        for parameter in parameters:
            if parameter.param_type_name == "argument":
                parameter.display_type = _nothing
        return parameters

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [one for one in self.get_params(ctx) if one.param_type_name == "argument"]
        return [self.options_metavar or "", *(one.metavar or one.name.upper() for one in arguments)]

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        with _in_one_line(self, info_name, parent):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _in_one_line(self, ctx.info_name, ctx.parent):
            return super().invoke(ctx)


class Group(TyperGroup):
    """A group of commands with usage errors of one line."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        with _in_one_line(self, info_name, parent):
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _in_one_line(self, ctx.info_name, ctx.parent):
            return super().invoke(ctx)


def _nothing(ctx: Any) -> str:
    return ""


@contextmanager
def _in_one_line(command: Any, name: str | None, parent: Any) -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        path = f"{parent.command_path} {name}" if parent is not None else name or ""
        typer.echo(_line(error, getattr(command, "speaker", "") or path, f"see {path} -h"), err=True)
        raise typer.Exit(2) from None


def _line(error: Any, speaker: str, see: str) -> str:
    """The error and a remedy: the option that was probably meant, the message's own remedy, or where to find help."""
    if type(error).__name__ == "NoSuchOption":
        context, name = error.ctx, error.option_name
        known = [option for one in context.command.get_params(context) for option in one.opts]
        near = get_close_matches(name, known, 1, 0.7)
        return f"{speaker}: there is no option {name}; " + (f"did you mean {near[0]}?" if near else see)
    if type(error).__name__ == "MissingParameter":
        return f"{speaker}: {error.param.metavar} is missing; {see}"
    if not isinstance(error, typer.BadParameter):
        said = error.format_message().rstrip(".")
        return f"{speaker}: {said[:1].lower()}{said[1:]}" + ("" if said.endswith("?") else f"; {see}")
    if error.param is None:  # ours, which say what to do
        return ": ".join(str(part) for part in (speaker, error.param_hint, error.message) if part)
    return f"{speaker}: {error.param.opts[0]}{_given(error)}: {_plain(error.message)}; {see}"


def _given(error: Any) -> str:
    """The value that was given, where the library that refused it says so."""
    details: list[Any] = getattr(error.__cause__, "errors", list)()
    return f" {details[0]['input']}" if details else ""


def _plain(message: str) -> str:
    """A message about a value in the words of a command line, not of the library that checked it."""
    message = re.sub(r"^Value error, '[^']*' is not one of (.*?)\.?$", r"choose \1", message)
    message = re.sub(r"^Input should be (.*?)(?:, unable to .*)?$", r"must be \1", message)
    return message.replace("'", "") if message.startswith("choose") else message
