"""What all job files have in common: the launcher's command line, the job's own options, templates."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from crosstrain.launch.options import LaunchOptions, UsageError
from crosstrain.launch.target import Target

# Options that the job itself decides, or that have a meaning only on the machine on which they are typed.
ELSEWHERE = (
    "num_machines",
    "num_processes",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "gpu_ids",
)
OPTION = re.compile(r"[a-z][a-z-]*(=[\w.:,@%+/\[\]*-]+)?")
LONGEST_NAME = 50  # Kubernetes allows 63 characters for the name of a pod, its number included


def processes_of_a_machine(kind: str, options: LaunchOptions) -> int:
    """The number of processes of each machine. Raises UsageError unless the options give it for the cluster.

    kind: the value of `--emit`.
    """
    if options.num_processes is None:
        raise UsageError(f"--emit {kind} needs --num-processes: this machine's devices are not the cluster's")
    if options.num_processes < 1 or options.num_processes % options.num_machines:
        raise UsageError(
            f"--num-processes {options.num_processes}: must be a multiple of the {options.num_machines} machines"
        )
    if options.gpu_ids is not None:
        raise UsageError(
            f"--emit {kind} and --gpu-ids exclude each other: the cluster gives each job its devices"
        )
    return options.num_processes // options.num_machines


def launcher_options(
    options: LaunchOptions, origin: Mapping[str, str], without: Sequence[str] = ()
) -> dict[str, str | None]:
    """The options that were given, as flags and values; the value of a switch is None. without: names to leave out."""
    given: dict[str, str | None] = {}
    for name, value in asdict(options).items():
        if name not in origin or name in ELSEWHERE or name in without or value is None:
            continue
        flag = name.replace("_", "-")
        if isinstance(value, dict):
            raise UsageError(
                f"{name} ({origin[name]}) cannot be written into a job: give it to the Accelerator"
            )
        if isinstance(value, bool):
            given[f"--{flag}" if value else f"--no-{flag}"] = None
        else:
            given[f"--{flag}"] = str(value)
    return given


def command_lines(
    start: Sequence[str],
    options: LaunchOptions,
    origin: Mapping[str, str],
    target: Target,
    without: Sequence[str] = (),
) -> list[str]:
    """A command for a shell, one line for each group of words: ``start``, the options that were given, the target."""
    given = launcher_options(options, origin, without)
    words = [flag if value is None else f"{flag} {shlex.quote(value)}" for flag, value in given.items()]
    return [*start, *([" ".join(words)] if words else []), shlex.join(target_words(target))]


def target_words(target: Target) -> list[str]:
    """The words of the command line after the launcher's options."""
    return [*(["-m"] if target.is_module else []), target.name, *target.arguments]


def job_name(target: Target) -> str:
    """The name of the script in letters, digits and dashes."""
    return re.sub(r"\W+", "-", Path(target.name).stem) or "crosstrain"


def host_name(target: Target) -> str:
    """The name of the script in a form that can be part of a host's name, which begins with a letter."""
    name = (
        re.sub(r"[\W_]+", "-", job_name(target).lower(), flags=re.ASCII).strip("-")[:LONGEST_NAME].strip("-")
    )
    return name if name[:1].isalpha() else f"job-{name}".strip("-")


def job_options(
    kind: str, given: Sequence[str], forms: Mapping[str, str], required: Mapping[str, str]
) -> dict[str, str]:
    """The values of `--job-option NAME=VALUE`.

    forms: a regular expression for each option's value. required: for each required option a description of its value.
    """
    values: dict[str, str] = {}
    for option in given:
        name, _, value = option.partition("=")
        if name not in forms:
            raise UsageError(
                f"--job-option {option}: --emit {kind} knows {', '.join(forms)}, each as name=value"
            )
        if not re.fullmatch(forms[name], value):
            raise UsageError(f"--job-option {option}: {value!r} cannot be its value")
        values[name] = value
    for name, meaning in required.items():
        if name not in values:
            raise UsageError(f"--emit {kind} needs --job-option {name}={meaning}")
    return values


def template(name: str) -> Template:
    """A template of crosstrain_templates. The caller must quote every word that comes from outside."""
    environment = Environment(
        loader=PackageLoader("crosstrain_templates", ""),
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(name)
