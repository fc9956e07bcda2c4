"""The `crosstrain` command. Importing it imports no torch: `--help` and wrong options answer at once."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from crosstrain.command_line import Command, Group, Version
from crosstrain.launch import command as launch_commands
from crosstrain.launch.command import usage_error
from crosstrain.requirements import install

MIGRATE = "migrate"


class _Commands(Group):
    """The commands of `crosstrain`, with the command `migrate` among them."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [MIGRATE, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name == MIGRATE:
            return typer.main.get_command(import_module("crosstrain_migrate.cli").app)
        return super().get_command(ctx, cmd_name)


main = typer.Typer(
    name="crosstrain",
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@main.callback(invoke_without_command=True)
def _group(context: typer.Context, version: Version = False) -> None:
    """Migrate, verify and launch PyTorch training on any number of processes."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help(), err=True)
        raise typer.Exit(2)


launch_commands.add_to(main)


Original = Annotated[
    Path, typer.Argument(metavar="ORIGINAL", help="The script as it was; it runs in one process.")
]
Migrated = Annotated[Path, typer.Argument(metavar="MIGRATED", help="The script as it is now.")]
ScriptArgs = Annotated[
    list[str] | None, typer.Argument(metavar="[-- ARGS...]", help="Arguments for both scripts, after --.")
]
Processes = Annotated[str, typer.Option(metavar="N,N", help="Numbers of processes to try.")]
Steps = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="End the runs after so many optimizer steps.")
]
Expect = Annotated[
    Literal["equal", "agree"],
    typer.Option(help="agree: several processes need only finish with equal ranks."),
]
Quick = Annotated[bool, typer.Option("--quick", help="Leave out the default launch with frozen weights.")]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="Time limit of each run.")]
Folder = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder that every run gets a copy of [default: the current one]."),
]
Overlay = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder whose files replace those of the copy for the migrated script."),
]
Link = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A name in that folder to link instead of copying: data only read."),
]
Ignore = Annotated[
    list[str] | None,
    typer.Option(metavar="REGEX", help="Leave out printed lines that match this regular expression."),
]
Cuda = Annotated[
    Literal["auto", "absent", "present"],
    typer.Option(help="What torch.cuda.is_available() says; auto: false, unless the original needs it."),
]
DataSets = Annotated[
    Literal["real", "synthetic"],
    typer.Option(help="synthetic: torchvision's data sets are small stand-ins where missing."),
]
RunBackend = Annotated[
    Literal["torch", "xla"],
    typer.Option(help="xla: run it once more on XLA's CPU client, and count what is compiled in each step."),
]
Show = Annotated[Literal["text", "json"], typer.Option(help="What to print.")]
Output = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the JSON report to this file, too.")]
Figure = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the loss curves to this SVG file.")]


@main.command(cls=Command, short_help="Train two scripts side by side and compare them.")
def verify(
    original: Original,
    migrated: Migrated,
    script_args: ScriptArgs = None,
    processes: Processes = "1,2",
    steps: Steps = None,
    expect: Expect = "equal",
    quick: Quick = False,
    timeout: Timeout = 300.0,
    folder: Folder = None,
    overlay: Overlay = None,
    link: Link = None,
    ignore: Ignore = None,
    cuda: Cuda = "auto",
    data: DataSets = "real",
    backend: RunBackend = "torch",
    output_format: Show = "text",
    output: Output = None,
    figure: Figure = None,
    version: Version = False,
) -> None:
    """Run two scripts on the CPU and compare how they train: losses, gradients, weights, printed lines.

    This runs both scripts, in a copy of the folder. Exit code 0: the same; 1: different, failed or hung.
    """
    # The proof is a package of its own that imports this one. This is the one place that reaches it, by its name.
    try:
        proof = import_module("crosstrain_verify.command")
    except ModuleNotFoundError as error:
        usage_error("verify", f"{error.name} is not installed: {install('torch')}")
    code = proof.run(
        (original, migrated),
        steps,
        shown_as=output_format,
        output=output,
        figure=figure,
        fail=partial(usage_error, "verify"),
        args=script_args or [],
        processes=_numbers(processes),
        expect=expect,
        default_launch=not quick,
        timeout=timeout,
        folder=folder or Path.cwd(),
        overlay=overlay,
        links=link or [],
        ignore=ignore or [],
        devices=None if cuda == "auto" else cuda,
        data=data,
        backend=backend,
    )
    raise typer.Exit(code)


def _numbers(processes: str) -> list[int]:
    try:
        return [int(number) for number in processes.split(",")]
    except ValueError:
        usage_error("verify", f"--processes {processes}: numbers separated by commas, such as 1,2")


@main.command("merge-weights", cls=Command, short_help="Join a sharded checkpoint into one file.")
def merge_weights(
    source: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="A folder that save_model or save_state wrote.")
    ],
    target: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write: .safetensors, .pt, .pth or .bin.")
    ],
    version: Version = False,
) -> None:
    """Put the weights of a sharded checkpoint together in one file."""
    try:
        from crosstrain.checkpoint.merge_weights import merge
    except ModuleNotFoundError as error:
        usage_error("merge-weights", f"{error.name} is not installed: {install('torch')}")
    try:
        number = merge(source, target)
    except (OSError, ValueError, RuntimeError) as error:
        usage_error("merge-weights", error)
    typer.echo(f"wrote {target}: {number} tensors, {target.stat().st_size:,} bytes")


@main.command(cls=Command, short_help="Print how an assistant uses migrate and verify.")
def guide(version: Version = False) -> None:
    """Print a page that tells a coding assistant when to call which command, and how to read what comes back."""
    typer.echo((Path(__file__).parent / "SKILL.md").read_text(encoding="utf-8"), nl=False)


@main.command(cls=Command, short_help="Describe this machine, for a bug report.")
def env(version: Version = False) -> None:
    """Describe this machine and installation, to paste into a bug report."""
    from crosstrain.launch.env import describe

    rows = describe()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")
