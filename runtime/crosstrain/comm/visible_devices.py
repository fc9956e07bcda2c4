"""The devices that a launcher sees, and hides from processes, before a run starts. Importing this does not import torch."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstrain.comm.xla.chips import xla_wanted

# The variable that hides devices from a process, by torch's name of the accelerator.
VISIBLE_DEVICES = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "xpu": "ZE_AFFINITY_MASK",
    "npu": "ASCEND_RT_VISIBLE_DEVICES",
}


# Several processes may use one device: for tests, far too slow for training.
SHARE = "CROSSTRAIN_SHARE_DEVICES"


def device_index(local_rank: int, count: int, kind: str, env: Mapping[str, str]) -> int | None:
    """The index of the device that a process uses, of the ``count`` devices it sees; None if there is none for it.

    If each process sees only one device, that is its own: `srun --gpus-per-task=1`, or a wrapper that sets
    CUDA_VISIBLE_DEVICES for each process. NCCL raises an error if two processes use the same device.
    """
    if local_rank < count:
        return local_rank
    if count and env.get(SHARE) == "1":
        return local_rank % count
    return 0 if count == 1 and _sees_its_own(kind, env) else None


def _sees_its_own(kind: str, env: Mapping[str, str]) -> bool:
    """Whether the visible devices were chosen for this process alone."""
    visible = env.get(VISIBLE_DEVICES.get(kind, ""), "")
    if visible and "," not in visible:
        return True
    return any(env.get(name) for name in ("SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK", "SLURM_GPU_BIND"))


def see_all_again(
    name: str, local_rank: int, processes: int, env: MutableMapping[str, str], started_with: Mapping[str, str]
) -> str | None:
    """Undo a script's choice of fewer devices than there are processes on this machine, and return the choice.

    `os.environ["CUDA_VISIBLE_DEVICES"] = "0"` is meant for the one process of a plain script; several processes would all use
    that device. A choice of enough devices stays, and so does that of a process's own one, `= os.environ["LOCAL_RANK"]`, and an
    empty one, or -1, which is the choice of the CPU.

    name: the variable. started_with: the environment that the process was started with.
    """
    chosen, before = env.get(name, ""), started_with.get(name)
    named = [one.strip() for one in chosen.split(",")]
    if chosen == before or named[0] in ("", "-1") or len(named) >= processes:
        return None
    all_of_them = before.split(",") if before else [str(number) for number in range(processes)]
    if local_rank and named == all_of_them[local_rank : local_rank + 1]:
        return None
    if before is None:
        del env[name]
    else:
        env[name] = before
    return f"{name}={chosen}"


def started_with() -> dict[str, str]:
    """The environment that this process, or the one that it is a fork of, was started with. Outside Linux: the present one."""
    try:
        entries = Path("/proc/self/environ").read_bytes().split(b"\0")
    except OSError:
        return dict(os.environ)
    return dict(os.fsdecode(entry).split("=", 1) for entry in entries if b"=" in entry)


@dataclass(frozen=True)
class Devices:
    """The accelerators that this process can see: torch's name of their type (None: no device), and their number."""

    kind: str | None = None
    count: int = 0

    @property
    def one_process(self) -> bool:
        """Whether one process drives all of them."""
        return self.kind == "xla"


CHIPS = Devices("xla", 1)  # a launcher counts all chips of a host as one device


def visible_devices() -> Devices:
    """The accelerators that torch sees; no context is created on any of them."""
    if xla_wanted(os.environ):
        return CHIPS
    import torch  # late, because the launcher checks and prints its options without torch

    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return Devices()
    return Devices(accelerator.type, torch.accelerator.device_count())


def prepare_torch_tpu(machines: int, processes: int) -> None:
    """Set the environment that processes need if torch_tpu drives the chips, with one process for each chip.

    Experimental: written after torch_tpu's documentation, and never run on a TPU.
    """
    import torch

    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None or accelerator.type != "tpu":
        return
    print("crosstrain launch: training through torch_tpu is experimental", file=sys.stderr)
    module: Any = torch.get_device_module(accelerator)
    module.distributed.set_tpu_launch_env(nnodes=machines, nproc_per_node=processes)


def names() -> list[tuple[str, str]]:
    """(name, value) for `crosstrain env`: the accelerators, and the versions of their software."""
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
