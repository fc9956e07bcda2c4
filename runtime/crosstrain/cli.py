"""The `crosstrain` command. Importing it imports no torch: `--help` and wrong options answer at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

if TYPE_CHECKING:
    from crosstrain.launch.options import Resolved

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


class Precision(str, Enum):
    """Values of `--mixed-precision`."""

    NO = "no"
    FP16 = "fp16"
    BF16 = "bf16"


class Rendezvous(str, Enum):
    """Values of `--rdzv-backend`."""

    STATIC = "static"
    C10D = "c10d"


def _usage_error(command: str, message: object) -> NoReturn:
    typer.echo(f"crosstrain {command}: {message}", err=True)
    raise typer.Exit(2)


# Options end at the script: everything after it is the script's, dashes and all.
@main.command(context_settings={"allow_interspersed_args": False})
def launch(
    target: Annotated[
        list[str],
        typer.Argument(metavar="SCRIPT|MODULE [ARGS]...", help="What to run, then its own arguments."),
    ],
    module: Annotated[
        bool, typer.Option("-m", "--module", help="The target is a module, as in python -m.")
    ] = False,
    cpu: Annotated[bool, typer.Option("--cpu", help="Train on the CPU.")] = False,
    num_processes: Annotated[
        int | None,
        typer.Option(help="Ranks, all machines together [default: one per visible device, else 1]."),
    ] = None,
    gpu_ids: Annotated[str | None, typer.Option(help="Devices to use, such as 0,2.")] = None,
    mixed_precision: Annotated[
        Precision | None, typer.Option(help="Accelerator(mixed_precision=...).")
    ] = None,
    gradient_accumulation_steps: Annotated[
        int | None, typer.Option(min=1, help="Accelerator(gradient_accumulation_steps=...).")
    ] = None,
    split_batches: Annotated[
        bool,
        typer.Option(
            "--split-batches", help="Split the script's batches over the ranks: the same training, faster."
        ),
    ] = False,
    num_machines: Annotated[
        int | None, typer.Option(min=1, help="Machines that take part [default: 1].")
    ] = None,
    machine_rank: Annotated[int | None, typer.Option(help="Which of them this is, from 0.")] = None,
    main_process_ip: Annotated[str | None, typer.Option(help="Address of machine 0.")] = None,
    main_process_port: Annotated[int | None, typer.Option(help="Port of machine 0 [default: 29500].")] = None,
    rdzv_backend: Annotated[
        Rendezvous | None, typer.Option(help="How several machines find each other.")
    ] = None,
    max_restarts: Annotated[
        int | None, typer.Option(min=0, help="Start all ranks again after a failure, at most so often.")
    ] = None,
    monitor_interval: Annotated[
        float | None, typer.Option(min=0.01, help="Seconds between looks at the ranks [default: 0.1].")
    ] = None,
    log_dir: Annotated[
        str | None, typer.Option(help="Keep each rank's output in files under this folder.")
    ] = None,
    tee: Annotated[
        str | None,
        typer.Option(
            help="Keep output in files and show it too: 1 stdout, 2 stderr, 3 both, 0:3,1:1 by rank."
        ),
    ] = None,
    config_file: Annotated[
        Path | None, typer.Option(help="Options in YAML [default: the one that `crosstrain config` writes].")
    ] = None,
    debug: Annotated[bool, typer.Option("--debug", help="Show the agent's own log.")] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Show what would be run and where each value is from.")
    ] = False,
) -> None:
    """Run a script on every device of this machine, or of several."""
    from crosstrain.launch.target import Target, TargetNotFoundError

    given = {
        "cpu": cpu,
        "num_processes": num_processes,
        "gpu_ids": gpu_ids,
        "mixed_precision": mixed_precision.value if mixed_precision else None,
        "gradient_accumulation_steps": gradient_accumulation_steps,
        "split_batches": split_batches,
        "num_machines": num_machines,
        "machine_rank": machine_rank,
        "main_process_ip": main_process_ip,
        "main_process_port": main_process_port,
        "rdzv_backend": rdzv_backend.value if rdzv_backend else None,
        "max_restarts": max_restarts,
        "monitor_interval": monitor_interval,
        "log_dir": log_dir,
        "tee": tee,
    }
    run = Target(target[0], is_module=module, arguments=tuple(target[1:]))
    try:
        run.check()
    except TargetNotFoundError as error:
        _usage_error("launch", error)
    resolved = _resolve("launch", given, config_file)
    if print_config:
        typer.echo(resolved.describe())
        return
    from crosstrain.launch import agent

    sys.exit(agent.launch(resolved, run, debug=debug))


def _resolve(command: str, given: Mapping[str, object], config_file: Path | None) -> Resolved:
    """The launch that the options describe, or an exit with the reason why this machine cannot do it."""
    from crosstrain.launch.layers import layered
    from crosstrain.launch.options import UsageError, resolve

    try:
        options, origin = layered(given, config_file)
        from crosstrain.launch import agent  # imports torch: wrong options have been answered by now

        resolved = resolve(options, agent.visible_devices(), origin=origin)
        agent.check_port(options)
    except UsageError as error:
        _usage_error(command, error)
    except ModuleNotFoundError as error:
        _usage_error(command, f"{error.name} is not installed: pip install 'crosstrain[torch]'")
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    return resolved


@main.command()
def test(
    cpu: Annotated[bool, typer.Option("--cpu", help="Test on the CPU.")] = False,
    num_processes: Annotated[int | None, typer.Option(help="Ranks [default: as for launch].")] = None,
    gpu_ids: Annotated[str | None, typer.Option(help="Devices to use, such as 0,2.")] = None,
    config_file: Annotated[Path | None, typer.Option(help="Options in YAML.")] = None,
) -> None:
    """Check that training works on these processes: data, random numbers, gathering, gradients, saving."""
    given = {"cpu": cpu, "num_processes": num_processes, "gpu_ids": gpu_ids}
    resolved = _resolve("test", given, config_file)
    from crosstrain.launch import agent
    from crosstrain.launch.target import Target

    resolved.environment["CROSSTRAIN_QUIET"] = "1"
    sys.exit(agent.launch(resolved, Target("crosstrain.launch.selftest", is_module=True)))


@main.command()
def config(
    default: Annotated[bool, typer.Option("--default", help="Ask nothing: write the defaults.")] = False,
    config_file: Annotated[Path | None, typer.Option(help="Where to write it.")] = None,
) -> None:
    """Answer a few questions; launch then uses the answers as its defaults."""
    from crosstrain.launch.layers import default_file, write_file

    path = config_file or default_file()
    options: dict[str, object] = {"mixed_precision": "no"}
    if not default:
        if typer.confirm("Train on the CPU even where there is an accelerator?", default=False):
            options["cpu"] = True
        number = typer.prompt("Processes on this machine (0: one for each accelerator)", default=0, type=int)
        if number:
            options["num_processes"] = number
        precision = typer.prompt("Mixed precision", default=Precision.NO, type=Precision)
        options["mixed_precision"] = Precision(precision).value
        question = "Split the script's batches over the processes, so that they train as one would?"
        if typer.confirm(question, default=False):
            options["split_batches"] = True
    try:
        write_file(path, options)
    except OSError as error:
        _usage_error("config", f"{path}: {error.strerror}")
    typer.echo(f"wrote {path}")


class Expectation(str, Enum):
    """Values of `--expect`."""

    EQUAL = "equal"
    AGREE = "agree"


class OutputFormat(str, Enum):
    """Values of `--output-format`."""

    TEXT = "text"
    JSON = "json"


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
        typer.Option(
            help="agree: several processes need only finish with equal ranks (dropout, batch statistics)."
        ),
    ] = Expectation.EQUAL,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for each run.")] = 300.0,
    folder: Annotated[
        Path | None, typer.Option(help="Folder that every run gets a copy of [default: the current one].")
    ] = None,
    link: Annotated[
        list[str] | None,
        typer.Option(help="A name in that folder to link instead of copying: data only read."),
    ] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(help="Leave out printed lines that match this regular expression.")
    ] = None,
    output_format: Annotated[OutputFormat, typer.Option(help="What to print.")] = OutputFormat.TEXT,
) -> None:
    """Run two scripts on the CPU and compare how they train: losses, gradients, weights, printed lines.

    This runs both scripts, in a copy of the folder. Exit code 0: the same; 1: different, failed or hung.
    """
    try:
        numbers = [int(number) for number in processes.split(",")]
    except ValueError:
        _usage_error("verify", f"--processes {processes}: numbers separated by commas, such as 1,2")
    try:
        from crosstrain.verify import VerifyInputError
        from crosstrain.verify import verify as run
        from crosstrain.verify.client import ServerError
    except ModuleNotFoundError as error:
        _usage_error("verify", f"{error.name} is not installed: pip install 'crosstrain[verify]'")
    try:
        report = run(
            original,
            migrated,
            args=script_args or [],
            processes=numbers,
            steps=steps,
            expect=expect.value,
            timeout=timeout,
            folder=folder or Path.cwd(),
            links=link or [],
            ignore=ignore or [],
        )
    except (VerifyInputError, ServerError) as error:
        _usage_error("verify", error)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if output_format is OutputFormat.JSON:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        from rich.console import Console

        from crosstrain.verify.render import render

        render(report, Console())
    raise typer.Exit(report.exit_code)


@main.command()
def env() -> None:
    """Describe this machine and installation, to paste into a bug report."""
    from crosstrain.launch.machine import describe

    rows = describe()
    width = max(len(name) for name, _ in rows)
    for name, value in rows:
        typer.echo(f"{name:<{width}}  {value}")
