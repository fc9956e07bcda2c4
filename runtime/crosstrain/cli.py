"""The `crosstrain` command. Importing it imports no torch: `--help` and wrong options answer at once."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from crosstrain.launch import command as launch_commands
from crosstrain.launch.command import usage_error

main = typer.Typer(
    name="crosstrain",
    help="Launch, check and describe distributed training.",
    rich_markup_mode=None,
    add_completion=False,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
)


@main.callback()
def _group() -> None:
    """Launch, check and describe distributed training."""


launch_commands.add_to(main)


class Expectation(str, Enum):
    """Values of `--expect`."""

    EQUAL = "equal"
    AGREE = "agree"


class OutputFormat(str, Enum):
    """Values of `--output-format`."""

    TEXT = "text"
    JSON = "json"


class Devices(str, Enum):
    """Values of `--cuda`."""

    AUTO = "auto"
    ABSENT = "absent"
    PRESENT = "present"


class Data(str, Enum):
    """Values of `--data`."""

    REAL = "real"
    SYNTHETIC = "synthetic"


class Backend(str, Enum):
    """Values of `--backend`."""

    TORCH = "torch"
    XLA = "xla"


@main.command()
def verify(
    original: Annotated[Path, typer.Argument(help="The script as it was; it runs in one process.")],
    migrated: Annotated[Path, typer.Argument(help="The script as it is now.")],
    script_args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]...", help="Arguments for both scripts, after --.")
    ] = None,
    processes: Annotated[str, typer.Option(help="Numbers of processes to try.")] = "1,2",
    steps: Annotated[
        int | None, typer.Option(min=1, help="End the runs after so many optimizer steps.")
    ] = None,
    expect: Annotated[
        Expectation,
        typer.Option(help="agree: several processes need only finish with equal ranks."),
    ] = Expectation.EQUAL,
    quick: Annotated[
        bool, typer.Option("--quick", help="Leave out the default launch with frozen weights.")
    ] = False,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for each run.")] = 300.0,
    folder: Annotated[
        Path | None, typer.Option(help="Folder that every run gets a copy of [default: the current one].")
    ] = None,
    overlay: Annotated[
        Path | None,
        typer.Option(help="Folder whose files replace those of the copy for the migrated script."),
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(help="A name in that folder to link instead of copying: data only read."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Leave out printed lines that match this regular expression.")
    ] = None,
    cuda: Annotated[
        Devices,
        typer.Option(help="What torch.cuda.is_available() says; auto: false, unless the original needs it."),
    ] = Devices.AUTO,
    data: Annotated[
        Data, typer.Option(help="synthetic: torchvision's data sets are small stand-ins where missing.")
    ] = Data.REAL,
    backend: Annotated[
        Backend,
        typer.Option(
            help="xla: run it once more on XLA's CPU client, and count what is compiled in each step."
        ),
    ] = Backend.TORCH,
    output_format: Annotated[OutputFormat, typer.Option(help="What to print.")] = OutputFormat.TEXT,
    output: Annotated[Path | None, typer.Option(help="Write the JSON report to this file, too.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Write the loss curves to this SVG file.")] = None,
) -> None:
    """Run two scripts on the CPU and compare how they train: losses, gradients, weights, printed lines.

    This runs both scripts, in a copy of the folder. Exit code 0: the same; 1: different, failed or hung.
    """
    try:
        numbers = [int(number) for number in processes.split(",")]
    except ValueError:
        usage_error("verify", f"--processes {processes}: numbers separated by commas, such as 1,2")
    try:
        from crosstrain.verify import VerifyInputError
        from crosstrain.verify import verify as run
        from crosstrain.verify.client import ServerError
    except ModuleNotFoundError as error:
        usage_error("verify", f"{error.name} is not installed: pip install 'crosstrain[verify]'")
    from rich.console import Console

    from crosstrain.verify.curves import svg
    from crosstrain.verify.render import live, render

    try:
        with live(Console(stderr=True), steps) as progress:
            report = run(
                original,
                migrated,
                args=script_args or [],
                processes=numbers,
                steps=steps,
                expect=expect.value,
                default_launch=not quick,
                timeout=timeout,
                folder=folder or Path.cwd(),
                overlay=overlay,
                links=link or [],
                ignore=ignore or [],
                devices=None if cuda is Devices.AUTO else cuda.value,
                data=data.value,
                backend=backend.value,
                progress=progress,
            )
    except (VerifyInputError, ServerError) as error:
        usage_error("verify", error)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    text = json.dumps(report.to_json(), indent=2)
    for path, content in ((output, text), (figure, svg(report))):
        if path is not None:
            path.write_text(content, encoding="utf-8")
    if output_format is OutputFormat.JSON:
        typer.echo(text)
    else:
        render(report, Console())
    raise typer.Exit(report.exit_code)


@main.command("merge-weights")
def merge_weights(
    source: Annotated[Path, typer.Argument(help="A folder that save_model or save_state wrote.")],
    target: Annotated[Path, typer.Argument(help="The file to write: .safetensors, .pt, .pth or .bin.")],
) -> None:
    """Put the weights of a sharded checkpoint together in one file."""
    try:
        from crosstrain.launch.merge import merge
    except ModuleNotFoundError as error:
        usage_error("merge-weights", f"{error.name} is not installed: pip install 'crosstrain[torch]'")
    try:
        number = merge(source, target)
    except (OSError, ValueError, RuntimeError) as error:
        usage_error("merge-weights", error)
    typer.echo(f"wrote {target}: {number} tensors, {target.stat().st_size:,} bytes")


@main.command()
def env() -> None:
    """Describe this machine and installation, to paste into a bug report."""
    from crosstrain.launch.machine import describe

    rows = describe()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")
