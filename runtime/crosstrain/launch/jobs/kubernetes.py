"""Writes a Kubernetes manifest (`--emit kubernetes`): an Indexed Job with one pod for each machine, and a headless Service
by which the pods find pod 0."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from crosstrain.launch.failure import MACHINES_APART, USAGE_ERROR
from crosstrain.launch.jobs.job_file import (
    host_name,
    job_options,
    launcher_options,
    processes_of_a_machine,
    target_words,
    template,
)
from crosstrain.launch.options import DEFAULT_PORT, LaunchOptions, UsageError
from crosstrain.launch.target import Target

_NAME = r"[a-z]([a-z0-9-]{0,48}[a-z0-9])?"
_QUANTITY = r"\d+(\.\d+)?(m|[KMGT]i?)?"
FORMS = {
    "image": r"[\w.:/@-]+",
    "name": _NAME,
    "namespace": _NAME,
    "claim": r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?",
    "mount": r"/[\w./-]+",
    "cpu": _QUANTITY,
    "memory": _QUANTITY,
    "shm": _QUANTITY,
    "gpu": r"[a-z0-9.-]+/[\w.-]+",
    "retries": r"\d{1,4}",
}
REQUIRED = {"image": "REGISTRY/NAME:TAG, an image that holds Crosstrain"}
DEFAULTS = {"mount": "/work", "shm": "8Gi", "gpu": "nvidia.com/gpu", "retries": "3"}
RESTARTS = 3  # of the ranks; when a pod is replaced, the other pods' launchers restart theirs
PLAIN = re.compile(r"--[a-z][\w./=$()-]*")


def kubernetes(
    options: LaunchOptions, origin: Mapping[str, str], target: Target, given: Sequence[str] = ()
) -> str:
    """The text of a manifest. Raises UsageError for options that it cannot express.

    given: the values of `--job-option`; their names are those of FORMS.
    """
    processes = processes_of_a_machine("kubernetes", options)
    if options.tpu:
        raise UsageError("--emit kubernetes writes jobs for GPUs and CPUs; for TPUs there is --emit tpu-vm")
    if options.rdzv_backend == "static" and options.num_machines > 1:
        raise UsageError(
            "--emit kubernetes needs --rdzv-backend c10d: pods that are replaced have to meet again"
        )
    values = DEFAULTS | {"name": host_name(target)} | job_options("kubernetes", given, FORMS, REQUIRED)
    port = options.main_process_port or DEFAULT_PORT
    return template("kubernetes.yaml.j2").render(
        {"namespace": "", "claim": "", "cpu": "", "memory": ""} | values,
        machines=options.num_machines,
        processes=options.num_processes,
        gpus=0 if options.cpu else processes,
        failures=int(values["retries"]) * options.num_machines,
        usage_error=USAGE_ERROR,
        machines_apart=MACHINES_APART,
        port=port,
        words=[_scalar(word) for word in _words(options, origin, target, values["name"], port)],
    )


def _words(
    options: LaunchOptions, origin: Mapping[str, str], target: Target, name: str, port: int
) -> list[str]:
    """The words after `crosstrain launch`. Kubernetes replaces `$(VARIABLE)` by its value, and `$$` by `$`."""
    words = [f"--num-processes={options.num_processes}"]
    given = launcher_options(options, origin, without=("rdzv_backend",))
    if options.num_machines > 1:
        words += [
            f"--num-machines={options.num_machines}",
            "--machine-rank=$(JOB_COMPLETION_INDEX)",
            f"--main-process-ip={name}-0.{name}",
            f"--main-process-port={port}",
            "--rdzv-backend=c10d",
        ]
        given.setdefault("--max-restarts", str(RESTARTS))
    own = [flag if value is None else f"{flag}={value}" for flag, value in given.items()]
    return words + [word.replace("$", "$$") for word in [*own, *target_words(target)]]


def _scalar(word: str) -> str:
    """The word in YAML, quoted unless every reader takes it for a string."""
    return word if PLAIN.fullmatch(word) else json.dumps(word, ensure_ascii=False)
