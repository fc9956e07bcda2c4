"""What devices this machine has and what they can do, by type. None of it needs a run that has started."""

from __future__ import annotations

import torch
from torch import Tensor

PINNING = ("cuda", "xpu")  # copies from these devices are asynchronous if the host's memory is pinned


def knows_device(name: str) -> bool:
    """Whether torch knows a device type of this name, on this machine or any other."""
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True


def has_device(name: str) -> bool:
    """Whether this machine has a device of this type."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return name == "cpu" or (accelerator is not None and accelerator.type == name)


def has_bf16() -> bool:
    """Whether this machine's accelerator, or its CPU if there is none, computes in bfloat16."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return True
    supported = getattr(torch.get_device_module(accelerator), "is_bf16_supported", None)
    return supported is None or bool(supported())


def any_device() -> bool:
    """Whether this machine has an accelerator."""
    return torch.accelerator.is_available()


def empty_device_cache() -> None:
    """Return cached memory to the device."""
    if torch.accelerator.is_available():
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
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
