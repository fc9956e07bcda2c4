"""A launch as a job file for a cluster (`--emit`).

In: the launcher's options. Out: the text of the file. This machine's devices do not matter, because the job runs elsewhere.
Only the command line imports this package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from crosstrain.launch.jobs.kubernetes import kubernetes
from crosstrain.launch.jobs.slurm import slurm
from crosstrain.launch.jobs.tpu_vm import tpu_vm
from crosstrain.launch.options import LaunchOptions
from crosstrain.launch.target import Target

Writer = Callable[[LaunchOptions, Mapping[str, str], Target, Sequence[str]], str]

# By the value of `--emit`. A writer raises UsageError for options that its kind of file cannot express.
WRITERS: dict[str, Writer] = {"slurm": slurm, "kubernetes": kubernetes, "tpu-vm": tpu_vm}
