"""The states in a checkpoint besides weights, random streams among them, read without running code from the files."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NamedTuple

import numpy
import torch

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import COMMON, capture, restore
from crosstrain.comm.types import HOST
from crosstrain.data.draws import Draws
from crosstrain.utils.files import write_atomically

_PIECE = 2**22  # bytes


def save(state: Any, path: Path) -> None:
    """Write ``state`` with `torch.save`, atomically."""
    write_atomically(path, lambda beside: torch.save(state, beside))


def save_beside_training(state: Any, path: Path) -> None:
    """`save` for a background thread: it lets other threads run Python, which torch does not while it writes a path."""

    def write(beside: Path) -> None:
        with beside.open("wb", buffering=0) as file:
            pieces: Any = _InPieces(file)  # has the methods of a file that torch calls
            torch.save(state, pieces)

    write_atomically(path, write)


class _InPieces:
    """A file that is written a few megabytes at a time."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data).cast("B")
        while view.nbytes:
            view = view[self._file.write(view[:_PIECE]) :]
        return len(data)

    def flush(self) -> None:
        self._file.flush()


class Reading(NamedTuple):
    """How to read states.

    ``allow_pickle``: also run code that a file names. ``options``: keyword arguments of torch.load.
    """

    allow_pickle: bool = False
    options: Mapping[str, Any] = MappingProxyType({})


SAFE = Reading()


def load(path: Path, reading: Reading = SAFE) -> Any:
    """Read tensors and plain values from a file; ValueError for other objects, unless ``reading`` allows them."""
    options = {"map_location": HOST, **reading.options}
    if reading.allow_pickle:
        return torch.load(path, weights_only=False, **options)
    try:
        return torch.load(path, weights_only=True, **options)
    except Exception as error:
        if "weights_only" not in str(error) and "WeightsUnpickler" not in str(error):
            raise
        raise ValueError(
            f"{path} holds objects that could only be restored by running code from the file, which is refused. Return "
            f"tensors and plain values from state_dict(), or allow their classes with "
            f"torch.serialization.add_safe_globals([...]), or pass load_state(allow_pickle=True) if you trust the file. ({str(error).splitlines()[0]})"
        ) from None


def random_states(comm: Comm, draws: Draws) -> dict[str, Any]:
    """The states of this process's random streams, as tensors and plain values.

    The common streams have accelerate's names. This process's own are beside them, under "own_draws".
    """
    found = capture(COMMON)
    kinds = draws.state_dict() if draws.enabled else {}
    common = kinds.pop("common", {})
    found |= {name: state for name, state in common.items() if name != "device"}
    version, words, gauss = found["python"]
    states = {"random_state": (version, tuple(words), gauss), "torch_manual_seed": found["torch"]}
    states["numpy_random_seed"] = tuple(found["numpy"])
    if (state := common.get("device", comm.random_state())) is not None:
        states["device_rng_state"] = state
    return states | ({"own_draws": kinds} if kinds else {})


def restore_random_states(states: dict[str, Any], comm: Comm, draws: Draws) -> None:
    """Restore this process's random streams, the device's last.

    Within a pass the common ones are put in place when it ends.
    """
    with draws.common():
        _restore_common(states, comm)
    if draws.enabled and (kinds := states.get("own_draws")) is not None:
        draws.load_state_dict(kinds)


def _restore_common(states: dict[str, Any], comm: Comm) -> None:
    streams = {"python": states["random_state"], "torch": states["torch_manual_seed"]}
    if "numpy_random_seed" in states:
        streams["numpy"] = states["numpy_random_seed"]
    restore(streams)
    device = comm.device
    if "device_rng_state" in states:
        comm.set_random_state(states["device_rng_state"])
    elif device.index is not None:  # accelerate saves a list with the states of all devices
        everywhere = states.get(f"torch_{device.type}_manual_seed", [])
        if device.index < len(everywhere):
            comm.set_random_state(everywhere[device.index])


def load_random_states(path: Path) -> dict[str, Any] | None:
    """Read what `random_states` gave; None, with a warning, where that would run code from the file."""
    # accelerate saves numpy's state as an array.
    core = sys.modules.get("numpy._core.multiarray") or sys.modules.get("numpy.core.multiarray")
    allowed = [numpy.ndarray, numpy.dtype, type(numpy.dtype(numpy.uint32)), vars(core)["_reconstruct"]]
    try:
        with torch.serialization.safe_globals(allowed):
            states = load(path)
    except ValueError as error:
        warnings.warn(f"random streams are not restored: {error}", stacklevel=2)
        return None
    return states if isinstance(states, dict) else None
