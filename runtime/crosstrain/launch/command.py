"""`crosstrain launch`, `crosstrain test` and `crosstrain config`. Torch is imported only to start ranks."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn, get_args

import typer

from crosstrain.command_line import Command, Version
from crosstrain.launch.options import Precision, RendezvousBackend
from crosstrain.requirements import missing

if TYPE_CHECKING:
    from crosstrain.launch.options import LaunchOptions, Resolved
    from crosstrain.launch.target import Target


# The options that `launch` and `test` share. None: not given here, so that the environment and the files decide.
Cpu = Annotated[bool | None, typer.Option("--cpu/--no-cpu", help="Train on the CPU.")]
Tpu = Annotated[
    bool | None,
    typer.Option("--tpu/--no-tpu", help="Train on the TPU through torch_xla [default: if one is found]."),
]
NumProcesses = Annotated[
    int | None,
    typer.Option(metavar="N", help="Ranks on all machines together [default: one per visible device, or 1]."),
]
GpuIds = Annotated[str | None, typer.Option(metavar="IDS", help="Devices to use, such as 0,2.")]
MixedPrecision = Annotated[Precision | None, typer.Option(help="Precision that models compute in.")]
NumMachines = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Machines that take part [default: 1].")
]
MachineRank = Annotated[int | None, typer.Option(metavar="N", help="Number of this machine, from 0.")]
MainProcessIp = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Address of machine 0.")]
MainProcessPort = Annotated[
    int | None, typer.Option(metavar="PORT", help="Port of machine 0 [default: 29500].")
]
RdzvBackend = Annotated[
    RendezvousBackend | None,
    typer.Option(help="How several machines find each other [default: static; c10d with restarts]."),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=1, metavar="SECONDS", help="How long ranks and machines wait for each other before giving up."
    ),
]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Options in YAML; they override those of `crosstrain config`. Accelerate's files work, too.",
    ),
]
Debug = Annotated[
    bool | None,
    typer.Option(
        "--debug/--no-debug",
        help="Show the agent's log, and compare operation, shapes and dtypes over the ranks before every collective and "
        "every averaging of gradients (slower).",
    ),
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Only show every value and where it comes from.")
]
# The options of `launch` alone.
TargetArgs = Annotated[
    list[str], typer.Argument(metavar="SCRIPT [ARGS]...", help="What to run, then its own arguments.")
]
Module = Annotated[bool, typer.Option("-m", "--module", help="The target is a module, as in python -m.")]
AccumulationSteps = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Batches for each optimizer step.")
]
SplitBatches = Annotated[
    bool | None,
    typer.Option(
        "--split-batches/--no-split-batches",
        help="Split the script's batches over the ranks: the same training, faster.",
    ),
]
CommonDraws = Annotated[
    bool | None,
    typer.Option(
        "--common-draws/--no-common-draws",
        help="Let all ranks draw the same noise, dropout masks and augmentation, as one process would.",
    ),
]
MaxRestarts = Annotated[
    int | None, typer.Option(min=0, metavar="N", help="Restart all ranks after a failure, at most N times.")
]
MonitorInterval = Annotated[
    float | None,
    typer.Option(min=0.01, metavar="SECONDS", help="How often the ranks are checked [default: 0.1]."),
]
LogDir = Annotated[
    str | None, typer.Option(metavar="DIR", help="Keep each rank's output in files under this folder.")
]
Tee = Annotated[
    str | None,
    typer.Option(
        metavar="STREAMS",
        help="Keep output in files and show it too: 1 stdout, 2 stderr, 3 both, 0:3,1:1 by rank.",
    ),
]
Emit = Annotated[
    Literal["slurm", "kubernetes", "tpu-vm"] | None,
    typer.Option(help="Write a job file for a cluster instead of running anything."),
]
JobOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="With --emit, an option of the cluster, such as time=04:00:00 or image=NAME; may be repeated.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --emit, the file to write [default: standard output]."),
]


def add_to(app: typer.Typer) -> None:
    """Add these commands to ``app``."""
    # Options end at the script: everything after it belongs to the script, even if it begins with dashes.
    app.command(
        cls=Command,
        context_settings={"allow_interspersed_args": False},
        short_help="Run a script on every device, of one or more machines.",
    )(launch)
    app.command(cls=Command, short_help="Check that training works on these processes.")(test)
    app.command(cls=Command, short_help="Ask for launch's defaults and save them.")(config)


def usage_error(command: str, message: object) -> NoReturn:
    """End the command with exit code 2 and one line that says why."""
    typer.echo(f"crosstrain {command}: {message}", err=True)
    raise typer.Exit(2)


def launch(
    context: typer.Context,
    target: TargetArgs,
    module: Module = False,
    cpu: Cpu = None,
    tpu: Tpu = None,
    num_processes: NumProcesses = None,
    gpu_ids: GpuIds = None,
    mixed_precision: MixedPrecision = None,
    gradient_accumulation_steps: AccumulationSteps = None,
    split_batches: SplitBatches = None,
    common_draws: CommonDraws = None,
    num_machines: NumMachines = None,
    machine_rank: MachineRank = None,
    main_process_ip: MainProcessIp = None,
    main_process_port: MainProcessPort = None,
    rdzv_backend: RdzvBackend = None,
    max_restarts: MaxRestarts = None,
    monitor_interval: MonitorInterval = None,
    timeout: Timeout = None,
    log_dir: LogDir = None,
    tee: Tee = None,
    config_file: ConfigFile = None,
    debug: Debug = None,
    print_config: PrintConfig = False,
    emit: Emit = None,
    job_option: JobOption = None,
    output: Output = None,
    version: Version = False,
) -> None:
    """Run a script on every device of this machine, or of several."""
    from crosstrain.launch.target import Target, TargetNotFoundError

    run = Target(target[0], is_module=module, arguments=tuple(target[1:]))
    try:
        run.check()
    except TargetNotFoundError as error:
        usage_error("launch", error)
    if emit is not None:
        _write_job(emit, _layered(context), run, job_option or [], output)
        return
    resolved = _resolve(context)
    if print_config:
        typer.echo(resolved.describe())
        return
    from crosstrain.launch import agent

    sys.exit(agent.launch(resolved, run))


def test(
    context: typer.Context,
    cpu: Cpu = None,
    tpu: Tpu = None,
    num_processes: NumProcesses = None,
    gpu_ids: GpuIds = None,
    mixed_precision: MixedPrecision = None,
    num_machines: NumMachines = None,
    machine_rank: MachineRank = None,
    main_process_ip: MainProcessIp = None,
    main_process_port: MainProcessPort = None,
    rdzv_backend: RdzvBackend = None,
    timeout: Timeout = None,
    config_file: ConfigFile = None,
    debug: Debug = None,
    version: Version = False,
) -> None:
    """Check that training works on these processes: data, random numbers, gathering, gradients, saving."""
    resolved = _resolve(context)
    from crosstrain.launch import agent
    from crosstrain.launch.target import Target

    resolved.environment["CROSSTRAIN_QUIET"] = "1"
    sys.exit(agent.launch(resolved, Target("crosstrain.launch.selftest", is_module=True)))


def _layered(context: typer.Context) -> tuple[LaunchOptions, dict[str, str]]:
    """The options of the command line, the environment and the files, and where each comes from. Wrong ones end the
    command."""
    from crosstrain.launch.config import KINDS, layered
    from crosstrain.launch.options import UsageError

    said = {name: context.params.get(name) for name in KINDS}
    try:
        return layered(said, context.params["config_file"])
    except UsageError as error:
        usage_error(str(context.info_name), error)


def _resolve(context: typer.Context) -> Resolved:
    """The launch that the options describe. If this machine cannot carry it out, the command ends and says why."""
    from crosstrain.launch.options import UsageError, resolve

    command = str(context.info_name)
    options, origin = _layered(context)
    if reason := missing():
        usage_error(command, reason)
    try:
        from crosstrain.comm.visible_devices import visible_devices
        from crosstrain.launch import agent  # imports torch; wrong options have been reported by now

        resolved = resolve(options, visible_devices(), origin=origin)
        agent.check_port(options)
    except UsageError as error:
        usage_error(command, error)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    return resolved


def _write_job(
    kind: str,
    layers: tuple[LaunchOptions, dict[str, str]],
    target: Target,
    job_options: list[str],
    output: Path | None,
) -> None:
    from crosstrain.launch.jobs import WRITERS
    from crosstrain.launch.options import UsageError

    try:
        text = WRITERS[kind](*layers, target, job_options)
        if output is None:
            typer.echo(text, nl=False)
        else:
            output.write_text(text, encoding="utf-8")
            typer.echo(f"wrote {output}")
    except UsageError as error:
        usage_error("launch", error)
    except OSError as error:
        usage_error("launch", f"--output {output}: {error.strerror}")


def config(
    default: Annotated[bool, typer.Option("--default", help="Ask nothing: write the defaults.")] = False,
    config_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write it.")] = None,
    version: Version = False,
) -> None:
    """Ask a few questions and save the answers as launch's defaults."""
    from crosstrain.launch.config import default_file, write_file

    path = config_file or default_file()
    try:
        options = {"mixed_precision": "no"} if default else _questions()
        write_file(path, options)
    except OSError as error:
        usage_error("config", f"{path}: {error.strerror}")
    except typer.Abort:
        typer.echo()  # end the line of the question
        usage_error("config", "stopped before the last answer: nothing was written (--default asks nothing)")
    typer.echo(f"wrote {path}")


def _questions() -> dict[str, Any]:
    """The answers as options, without those that are left to the machine."""
    options: dict[str, Any] = {}
    if typer.confirm("Train on the CPU even if there is an accelerator?", default=False):
        options["cpu"] = True
    machines = typer.prompt("Machines", default=1, type=int)
    if machines > 1:
        options["num_machines"] = machines
        options["machine_rank"] = typer.prompt("Number of this machine (0: the main one)", type=int)
        options["main_process_ip"] = typer.prompt("Address of the main machine, as the others reach it")
        options["main_process_port"] = typer.prompt(
            "A free port of the main machine", default=29500, type=int
        )
    question = "Processes on all machines together (0: one for each accelerator)"
    if number := typer.prompt(question, default=0, type=int):
        options["num_processes"] = number
    options["mixed_precision"] = _choice("Mixed precision", get_args(Precision))
    question = "Split the script's batches over the processes, so that they train as one would?"
    if typer.confirm(question, default=False):
        options["split_batches"] = True
    if restarts := typer.prompt("Restarts after a failure", default=0, type=int):
        options["max_restarts"] = restarts
    return options


def _choice(question: str, values: tuple[str, ...]) -> str:
    """Ask for one of the values, until the answer is one; an empty answer gives the first."""
    while (answer := typer.prompt(f"{question} ({', '.join(values)})", default=values[0])) not in values:
        typer.echo(f"{answer!r} is none of them.")
    return str(answer)
