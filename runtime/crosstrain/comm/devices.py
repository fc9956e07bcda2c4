"""What this machine's devices are and can do, asked by their type; no run has to be started."""

from __future__ import annotations

import torch
from torch import Tensor

PINNING = ("cuda", "xpu")  # copies from these devices go on by themselves if the host's memory is pinned


def knows_device(name: str) -> bool:
    """Whether torch knows a type of device by this name, here or on another machine."""
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
    """Whether this machine's device (or, without one, its CPU) computes in bfloat16."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    if accelerator is None:
        return True
    supported = getattr(torch.get_device_module(accelerator), "is_bf16_supported", None)
    return supported is None or bool(supported())


def any_device() -> bool:
    """Whether this machine has an accelerator."""
    return torch.accelerator.is_available()


def empty_device_cache() -> None:
    """Give cached memory back to the device."""
    if torch.accelerator.is_available():
        torch.accelerator.empty_cache()


def may_have_context() -> bool:
    """Whether this process has, or may have, a context on an accelerator: not every kind of device can be asked.

    To look at its memory instead might make the context.
    """
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return False
    ask = getattr(torch.get_device_module(accelerator), "is_initialized", None)
    return ask is None or bool(ask())


def device_random_state(kind: str) -> Tensor:
    """The random stream of this process's device of that type."""
    state: Tensor = torch.get_device_module(kind).get_rng_state()
    return state


def set_device_random_state(kind: str, state: Tensor) -> None:
    """Continue that stream from ``state``."""
    torch.get_device_module(kind).set_rng_state(state)


def use_in_thread(device: torch.device) -> None:
    """Called first in a new thread: the current device is each thread's own, and the first one until somebody says.

    Whatever the thread does with a device would take hundreds of megabytes of that one, which is another process's.
    """
    if device.index is not None and device.type != "cpu" and has_device(device.type):
        torch.accelerator.set_device_index(device.index)


def host_buffer(size: int, source: str) -> Tensor:
    """Bytes of host memory that a device of that type copies to; pinned where that makes the copy asynchronous."""
    return torch.empty(size, dtype=torch.uint8, pin_memory=source in PINNING)


def wait_for_copies() -> None:
    """Return when everything that the device has been asked to copy to the host is there."""
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()
