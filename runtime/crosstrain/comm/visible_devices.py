"""The devices that a launcher sees and hides, before any process of a run exists. Importing this imports no torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crosstrain.comm.xla.chips import xla_wanted

# Which variable hides devices from a process, by the name torch gives the accelerator.
VISIBLE_DEVICES = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "xpu": "ZE_AFFINITY_MASK",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
}


SHARE = (
    "CROSSTRAIN_SHARE_DEVICES"  # several processes may use one device: for tests, far too slow for training
)


def device_index(local_rank: int, count: int, kind: str, env: Mapping[str, str]) -> int | None:
    """Which of the ``count`` devices that it sees a process takes; None: there is none for it.

    Where each process sees one device, it is its own: `srun --gpus-per-task=1`, or a wrapper that sets
    CUDA_VISIBLE_DEVICES for each. NCCL notices if two processes mean the same one.
    """
    if local_rank < count:
        return local_rank
    if count and env.get(SHARE) == "1":
        return local_rank % count
    return 0 if count == 1 and _sees_its_own(kind, env) else None


def _sees_its_own(kind: str, env: Mapping[str, str]) -> bool:
    """Whether somebody has chosen the visible devices for this process alone."""
    visible = env.get(VISIBLE_DEVICES.get(kind, ""), "")
    if visible and "," not in visible:
        return True
    return any(env.get(name) for name in ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_GPU_BIND"))


@dataclass(frozen=True)
class Devices:
    """The accelerators this process can see: torch's name for their kind (None: no device), and how many."""

    kind: str | None = None
    count: int = 0

    @property
    def one_process(self) -> bool:
        """One process drives them all."""
        return self.kind == "xla"


CHIPS = Devices("xla", 1)  # as a launcher counts


def visible_devices() -> Devices:
    """The accelerators that torch sees, without creating a context on any of them."""
    if xla_wanted(os.environ):
        return CHIPS
    import torch  # the options are checked, and printed, without it

    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return Devices()
    return Devices(accelerator.type, torch.accelerator.device_count())


def prepare_torch_tpu(machines: int, processes: int) -> None:
    """Where torch_tpu drives the chips, one process each: they need an environment made before they start.

    Experimental: written to torch_tpu's documentation, never run on a TPU.
    """
    import torch

    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != "tpu":
        return
    print("crosstrain launch: training through torch_tpu is experimental", file=sys.stderr)
    module: Any = torch.get_device_module(accelerator)
    module.distributed.set_tpu_launch_env(nnodes=machines, nproc_per_node=processes)


def names() -> list[tuple[str, str]]:
    """Rows for a report: what is there, and the version of its software."""
    import torch

    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return [("accelerators", "none")]
    count = torch.accelerator.device_count()
    rows = [("accelerators", f"{count} {accelerator.type}")]
    tell = getattr(torch.get_device_module(accelerator), "get_device_name", None)
    if tell is not None:
        rows += [(f"{accelerator.type}:{index}", str(tell(index))) for index in range(count)]
    versions = {name: vars(torch.version).get(name) for name in ("cuda", "hip", "xpu")}
    return rows + [(name, str(version)) for name, version in versions.items() if version]
