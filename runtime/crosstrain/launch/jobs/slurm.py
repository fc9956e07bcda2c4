"""Writes an sbatch file (`--emit slurm`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crosstrain.launch.jobs.job_file import OPTION, command_lines, job_name, processes_of_a_machine, template
from crosstrain.launch.options import LaunchOptions, UsageError
from crosstrain.launch.target import Target

NOTICE = 120  # seconds before its time limit at which the job gets a signal and is queued again


def slurm(
    options: LaunchOptions, origin: Mapping[str, str], target: Target, job_options: Sequence[str] = ()
) -> str:
    """The text of an sbatch file. Raises UsageError for options that it cannot express.

    job_options: options of sbatch without dashes, such as `time=04:00:00` or `partition=a100`.
    """
    processes = processes_of_a_machine("slurm", options)
    for option in job_options:
        if not OPTION.fullmatch(option):
            raise UsageError(
                f"--job-option {option}: write an option of sbatch as name=value, without dashes"
            )
    return template("slurm.sbatch.j2").render(
        name=job_name(target),
        machines=options.num_machines,
        processes=options.num_processes,
        gpus=0 if options.cpu else processes,
        notice=NOTICE,
        job_options=list(job_options),
        command=_command(options, origin, target),
    )


def _command(options: LaunchOptions, origin: Mapping[str, str], target: Target) -> list[str]:
    """The launcher's command line in lines: the job's own options, the given ones, the target."""
    start = [f"crosstrain launch --num-processes {options.num_processes}"]
    if options.num_machines > 1:
        start.append(
            f'--num-machines {options.num_machines} --main-process-ip "${{hosts[0]}}" --main-process-port "$port"'
        )
    return command_lines(start, options, origin, target)
