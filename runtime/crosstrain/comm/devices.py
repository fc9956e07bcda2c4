"""What devices this machine has, what they can do, by type, and which one this process takes. None of it needs a started run."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

from crosstrain.comm.visible_devices import VISIBLE_DEVICES, device_index, see_all_again, started_with
from crosstrain.config import Place
from crosstrain.utils.messages import say

PINNING = ("cuda", "xpu")  # copies from these devices are asynchronous if the host's memory is pinned


def knows_device(name: str) -> bool:
    """Whether torch knows a device type of this name, on this machine or any other."""
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True


def machine_accelerator() -> torch.device | None:
    """The accelerator of this machine, without an index; CUDA is not started by asking.

    `torch.cuda.is_available` starts it. A script that sets CUDA_VISIBLE_DEVICES after that would choose nothing.
    """
    accelerator = torch.accelerator.current_accelerator()
    return accelerator if accelerator is not None and torch.accelerator.device_count() else None


def has_device(name: str) -> bool:
    """Whether this machine has a device of this type."""
    accelerator = machine_accelerator()
    return name == "cpu" or (accelerator is not None and accelerator.type == name)


def has_bf16() -> bool:
    """Whether this machine's accelerator, or its CPU if there is none, computes in bfloat16."""
    accelerator = machine_accelerator()
    if accelerator is None:
        return True
    supported = getattr(torch.get_device_module(accelerator), "is_bf16_supported", None)
    return supported is None or bool(supported())


def any_device() -> bool:
    """Whether this machine has an accelerator."""
    return machine_accelerator() is not None


def empty_device_cache() -> None:
    """Return cached memory to the device."""
    if any_device():
        torch.accelerator.empty_cache()


def may_have_context() -> bool:
    """Whether this process may have a context on an accelerator; True if that type of device cannot be asked.

    Asking for its memory instead could create the context.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return False
    ask = getattr(torch.get_device_module(accelerator), "is_initialized", None)
    return ask is None or bool(ask())


def device_random_state(kind: str) -> Tensor:
    """The state of the random stream of this process's device of that type."""
    state: Tensor = torch.get_device_module(kind).get_rng_state()
    return state


def set_device_random_state(kind: str, state: Tensor) -> None:
    """Set the random stream of this process's device of that type to ``state``."""
    torch.get_device_module(kind).set_rng_state(state)


def use_in_thread(device: torch.device) -> None:
    """Make ``device`` the current device of this thread. A new thread calls this first.

    The current device of a new thread is the machine's first one, which belongs to another process. Using it would take
    hundreds of megabytes of its memory.
    """
    if device.index is not None and device.type != "cpu" and has_device(device.type):
        torch.accelerator.set_device_index(device.index)


def host_buffer(size: int, source: str) -> Tensor:
    """uint8 of (size,) in host memory to which a device of type ``source`` copies; pinned if that makes it asynchronous."""
    return torch.empty(size, dtype=torch.uint8, device="cpu", pin_memory=source in PINNING)


def wait_for_copies() -> None:
    """Return when all copies from the device to the host are complete."""
    if any_device():
        torch.accelerator.synchronize()


def pick_device(cpu: bool, place: Place, wanted: int | None = None) -> torch.device:
    """The device that this process computes on, which becomes torch's current one.

    cpu: stay on the CPU. wanted: the index of the device of a process that no launcher started.
    """
    undone = None if cpu else _undo_choice_of_one_process(place)
    accelerator = None if cpu else machine_accelerator()
    if accelerator is None:
        return torch.device("cpu")
    if undone is not None and place.rank == 0:
        say(
            f"the script's {undone} is for one process: each of {place.local_world} uses a device of its own"
            f" (`crosstrain launch --gpu-ids` chooses them)"
        )
    count = torch.accelerator.device_count()
    if place.world == 1 and "LOCAL_RANK" not in os.environ:
        if wanted is None:  # the first one, until something has started the devices to choose another
            current = torch.accelerator.current_device_index() if may_have_context() else 0
            return torch.device(accelerator.type, current)
        if wanted >= count:
            raise RuntimeError(
                f"device {wanted} was asked for: there are {count} of type {accelerator.type!r}."
            )
        torch.accelerator.set_device_index(wanted)
        return torch.device(accelerator.type, wanted)
    index = device_index(place.local_rank, count, accelerator.type, os.environ)
    if index is None:
        raise RuntimeError(
            f"process {place.local_rank} of this machine has no device of its own: there are {count} of type "
            f"{accelerator.type!r}. Start at most {count} processes here, or use the CPU: "
            f"`crosstrain launch --cpu`, or Accelerator(cpu=True)."
        )
    torch.accelerator.set_device_index(index)
    return torch.device(accelerator.type, index)


def _undo_choice_of_one_process(place: Place) -> str | None:
    """Let each of a launcher's processes see all devices again, where the script chose one of them; return that choice."""
    if place.local_world < 2:
        return None
    at_start, local_rank = started_with(), place.local_rank
    choices = [
        see_all_again(name, local_rank, place.local_world, os.environ, at_start)
        for name in VISIBLE_DEVICES.values()
    ]
    undone = next((choice for choice in choices if choice is not None), None)
    cuda: Any = torch.cuda  # torch's stubs give its functions no types
    if undone is not None and cuda.is_initialized():
        raise RuntimeError(
            f"the script set {undone}, and used CUDA before it made the Accelerator: {place.local_world} processes would "
            f"share that device. Make the Accelerator first, or take the line out and use `crosstrain launch --gpu-ids`."
        )
    return undone
