"""The global random streams of a process (python, numpy, torch, a device): read, written and compared."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, TypeAlias

import numpy
import torch
from torch import Tensor

from crosstrain.comm.devices import device_random_state, has_device, knows_device, set_device_random_state

COMMON = ("torch", "python", "numpy")


State: TypeAlias = dict[str, Any]
"""Random states by stream: "torch", "python", "numpy", a device type, and "generators", a list.

The state at the beginning of a pass also has "order": the states of streams that torch or the script drew from between
iter() and the first batch.
"""


def capture(streams: tuple[str, ...]) -> State:
    """The current states of the named global streams, made of tensors, lists, numbers and strings.

    Devices that this machine lacks are left out, because a script may name the one it was written for.
    """
    state: State = {}
    for name in streams:
        if name == "torch":
            state[name] = torch.get_rng_state()
        elif name == "python":
            state[name] = random.getstate()
        elif name == "numpy":
            state[name] = numpy.random.get_state()
        elif has_device(name):
            state[name] = device_random_state(name)
    return plain(state)


def plain(state: State) -> State:
    """The states as tensors, lists, numbers and strings, which a file can hold."""
    state = dict(state)
    if "python" in state:
        version, words, gauss = state["python"]
        state["python"] = [version, list(words), gauss]
    if "numpy" in state:
        found = state["numpy"]
        if not isinstance(found, tuple):  # a generator that numpy's functions draw from
            inner = found.state
            found = (inner["bit_generator"], inner["state"]["key"], inner["state"]["pos"], 0, 0.0)
        kind, words, *rest = found
        state["numpy"] = [kind, words if isinstance(words, list) else words.tolist(), *rest]
    return state


def given(state: State) -> State:
    """The states as the streams give and take them: the inverse of `plain`."""
    state = dict(state)
    if "python" in state:
        version, words, gauss = state["python"]
        state["python"] = (version, tuple(words), gauss)
    if "numpy" in state:
        state["numpy"] = tuple(state["numpy"])
    return state


def check_streams(names: Iterable[str]) -> None:
    """Raise ValueError if a name is not that of a random stream."""
    for name in names:
        if name not in ("generator", "torch", "python", "numpy") and not knows_device(name):
            raise ValueError(
                f"rng_types: there is no random stream {name!r}; choose from generator, torch, python, numpy and the "
                f"device types."
            )


def restore(state: State) -> None:
    """Set the global streams that `state` names to the states in it."""
    for name, value in given(state).items():
        if name == "torch":
            torch.set_rng_state(value)
        elif name == "python":
            random.setstate(value)
        elif name == "numpy":
            numpy.random.set_state(value)
        elif name != "generators":
            set_device_random_state(name, value)


def same(a: Any, b: Any) -> bool:
    """Whether two captured states are equal."""
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)
