"""The process group: the one that is there already, or a new one that the launcher's variables describe."""

from __future__ import annotations

import importlib
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from crosstrain.config import Place, read_place


def joined_place() -> Place:
    """Our place in a group that was there before; local numbers are the environment's if it agrees."""
    rank, world = dist.get_rank(), dist.get_world_size()
    said = read_place()
    if said is not None and (said.rank, said.world) == (rank, world):
        return said
    count = max(1, torch.accelerator.device_count())
    return Place(rank, world, local_rank=rank % count, local_world=min(world, count))


def start_group(
    device: torch.device,
    place: Place,
    backend: str | None,
    init_method: str | None,
    timeout: timedelta | None,
) -> None:
    """Start the group of this process's place; RuntimeError when the others' address is not known, or not found."""
    if init_method is None and (place.master_addr is None or place.master_port is None):
        raise RuntimeError(
            f"RANK={place.rank} and WORLD_SIZE={place.world} are set, but not MASTER_ADDR and MASTER_PORT: "
            f"the {place.world} processes cannot find each other. Start the script with `crosstrain launch` "
            f"or `torchrun`, or unset RANK and WORLD_SIZE to run one process."
        )
    if backend is None:
        # Objects and CPU tensors travel by gloo even where the device has a backend of its own.
        own = dist.get_default_backend_for_device(device)
        backend = own if device.type == "cpu" else f"cpu:gloo,{device.type}:{own}"
    if init_method is None:
        init_method = f"tcp://{place.master_addr}:{place.master_port}"
        if "RANK" in os.environ:
            init_method = "env://"
    # Default arguments in this module are the group that exists when it is first imported. One that is held in them
    # cannot end: its threads would live on while the interpreter is taken down.
    importlib.import_module("torch.distributed.nn.functional")
    try:
        dist.init_process_group(
            backend, init_method=init_method, rank=place.rank, world_size=place.world, timeout=timeout
        )
    except dist.DistError as error:
        raise RuntimeError(
            f"rank {place.rank} of {place.world} did not find the others at "
            f"{place.master_addr}:{place.master_port} ({error}). Are all {place.world} processes started, "
            f"and is the port free and reachable?"
        ) from error


def group_device_types() -> set[str]:
    """The device types that the default group has a backend for ("cpu:gloo,cuda:nccl" has two)."""
    pairs = (part.split(":") for part in dist.get_backend_config().split(","))
    return {pair[0] for pair in pairs}


def no_group(out: Tensor, mine: Tensor) -> None:
    """What takes the place of a collective once the group has been left: RuntimeError."""
    raise RuntimeError(
        "this process has left its group, so nothing can be exchanged with the others any more: call end_training() "
        "after the last gather, save_state and wait_for_everyone."
    )
