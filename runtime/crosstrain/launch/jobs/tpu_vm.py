"""Writes a script that trains on every host of a TPU slice (`--emit tpu-vm`).

Experimental: written after the documentation of Google Cloud and torch_xla, and never run on a TPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crosstrain.launch.failure import USAGE_ERROR
from crosstrain.launch.jobs.job_file import command_lines, host_name, job_options, template
from crosstrain.launch.options import DEFAULT_PORT, LaunchOptions, UsageError
from crosstrain.launch.target import Target

FORMS = {
    "tpu": r"[a-z][a-z0-9-]*",
    "zone": r"[a-z][a-z0-9-]*",
    "project": r"[a-z][a-z0-9.:-]*",
    "name": r"[a-z][a-z0-9-]*",
    "folder": r"[\w./-]+",
    "retries": r"\d{1,4}",
}
REQUIRED = {"tpu": "NAME, the name of the TPU", "zone": "ZONE, where it is"}
DEFAULTS = {"project": "", "folder": "", "retries": "3"}


def tpu_vm(
    options: LaunchOptions, origin: Mapping[str, str], target: Target, given: Sequence[str] = ()
) -> str:
    """The text of a bash script. Raises UsageError for options that it cannot express.

    given: the values of `--job-option`; their names are those of FORMS.
    """
    if options.cpu or options.gpu_ids is not None:
        raise UsageError(f"--emit tpu-vm and {'--cpu' if options.cpu else '--gpu-ids'} exclude each other")
    if options.num_processes not in (None, options.num_machines):
        raise UsageError(
            f"--num-processes {options.num_processes}: on a TPU one process of each host drives all its chips; "
            "leave the option out, and say with --num-machines how many hosts the TPU has"
        )
    values = DEFAULTS | {"name": host_name(target)} | job_options("tpu-vm", given, FORMS, REQUIRED)
    return template("tpu-vm.sh.j2").render(
        values,
        machines=options.num_machines,
        usage_error=USAGE_ERROR,
        command=_command(options, origin, target),
    )


def _command(options: LaunchOptions, origin: Mapping[str, str], target: Target) -> list[str]:
    """The launcher's command line in lines: the job's own options, the given ones, the target."""
    start = ["crosstrain launch --tpu"]
    if options.num_machines > 1:
        port = options.main_process_port or DEFAULT_PORT
        start.append(
            f'--num-machines {options.num_machines} --machine-rank "$worker" '
            f'--main-process-ip "${{addresses[0]}}" --main-process-port {port}'
        )
    return command_lines(start, options, origin, target, without=("tpu",))
