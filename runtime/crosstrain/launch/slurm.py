"""A launch as a job file for a cluster (`--emit slurm`). Nothing here looks at this machine's devices: the
file is written on a login node, which has none."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from crosstrain.launch.options import LaunchOptions, UsageError
from crosstrain.launch.target import Target

NOTICE = 120  # seconds before the time limit that the job is told, to be queued again
# What the job itself decides, or what only has a meaning on the machine it is typed on.
ELSEWHERE = (
    "num_machines",
    "num_processes",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "gpu_ids",
)
OPTION = re.compile(r"[a-z][a-z-]*(=[\w.:,@%+/\[\]*-]+)?")


def slurm(
    options: LaunchOptions, origin: Mapping[str, str], target: Target, job_options: Sequence[str] = ()
) -> str:
    """The text of an sbatch file. Raises UsageError for what it cannot say.

    job_options: options of sbatch without dashes, such as `time=04:00:00` or `partition=a100`.
    """
    if options.num_processes is None:
        raise UsageError("--emit slurm needs --num-processes: this machine's devices are not the cluster's")
    if options.num_processes < 1 or options.num_processes % options.num_machines:
        raise UsageError(
            f"--num-processes {options.num_processes}: must be a multiple of the {options.num_machines} machines"
        )
    if options.gpu_ids is not None:
        raise UsageError("--emit slurm and --gpu-ids exclude each other: SLURM gives each job its devices")
    for option in job_options:
        if not OPTION.fullmatch(option):
            raise UsageError(
                f"--job-option {option}: write an option of sbatch as name=value, without dashes"
            )
    machine = options.num_processes // options.num_machines
    return (
        _environment()
        .get_template("slurm.sbatch.j2")
        .render(
            name=re.sub(r"\W+", "-", Path(target.name).stem) or "crosstrain",
            machines=options.num_machines,
            processes=options.num_processes,
            gpus=0 if options.cpu else machine,
            notice=NOTICE,
            job_options=list(job_options),
            command=_command(options, origin, target),
        )
    )


def _command(options: LaunchOptions, origin: Mapping[str, str], target: Target) -> list[str]:
    """The launcher's command line in lines: the job's own options, the given ones, the target."""
    lines = [f"crosstrain launch --num-processes {options.num_processes}"]
    if options.num_machines > 1:
        lines.append(
            f'--num-machines {options.num_machines} --main-process-ip "${{hosts[0]}}" --main-process-port "$port"'
        )
    given = []
    for name, value in asdict(options).items():
        if name not in origin or name in ELSEWHERE or value is None:
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            given.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            given.append(f"--{flag} {shlex.quote(str(value))}")
    if given:
        lines.append(" ".join(given))
    script = ["-m", target.name] if target.is_module else [target.name]
    lines.append(shlex.join([*script, *target.arguments]))
    return lines


def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("crosstrain_templates", ""),
        autoescape=False,  # a shell script: every word that comes from outside is quoted above
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
