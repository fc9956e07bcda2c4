"""Seeds random streams, and copies their states between ranks."""

from __future__ import annotations

import random
from collections.abc import Iterable

import numpy
import torch

from crosstrain.comm.random_streams import capture, check_streams, restore
from crosstrain.run import RUN


def set_seed(seed: int, device_specific: bool = False, deterministic: bool = False) -> None:
    """Seed the random streams of python, numpy, torch and the device.

    Args:
        device_specific: rank r uses ``seed + r``, so that noise, dropout and in-process augmentation differ between ranks.
            By default all ranks draw the same numbers.
        deterministic: make torch use deterministic algorithms.
    """
    common = seed
    if device_specific:
        seed += RUN.comm.rank
    random.seed(seed)
    numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)  # every device's generator too
    if RUN.started:
        RUN.comm.seed(common if not RUN.comm.averages else seed)
    if deterministic:
        torch.use_deterministic_algorithms(True)


def synchronize_rng_states(rng_types: Iterable[str], generator: torch.Generator | None = None) -> None:
    """Copy rank 0's random streams to every rank.

    ``rng_types``: "torch", "python", "numpy", "generator" (for ``generator``), or a device type. Raises ValueError for any
    other name.
    """
    for kind in rng_types:
        synchronize_rng_state(str(kind), generator)


def synchronize_rng_state(rng_type: str | None = None, generator: torch.Generator | None = None) -> None:
    """Copy one of rank 0's random streams to every rank: see `synchronize_rng_states`."""
    comm = RUN.comm
    if comm.world == 1:
        return
    if rng_type == "generator":
        if generator is None:
            raise ValueError("rng_type 'generator' needs the generator to synchronize")
        generator.set_state(comm.broadcast_object(generator.get_state()))
        return
    check_streams((rng_type or "torch",))
    restore(comm.broadcast_object(capture((rng_type or "torch",))))
