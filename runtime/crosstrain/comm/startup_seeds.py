"""Random streams at the start of a run: the same on every rank, except for those that the script has seeded by rank."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import COMMON, capture, restore
from crosstrain.utils import checks
from crosstrain.utils.messages import say

# Seeds that a script chose by rank differ by less than this; two random seeds do once in 2**28 runs.
NEAR = 2**24


def start_streams_alike(comm: Comm) -> set[str]:
    """Copy rank 0's python, numpy and torch streams to every rank, except for those that the script has seeded by rank.

    accelerate leaves the ranks' streams as they are: an unseeded `random_split` then gives each rank another split, and
    training items leak into validation. So streams that nobody seeded are made equal.

    A script that calls ``torch.manual_seed(seed + rank)`` before `Accelerator` wants different noise on every rank, and keeps
    it, as it would by the same call after `Accelerator`. Seeds that differ by less than `NEAR` are no accident, because an
    unseeded generator starts with a random number of 53 bits. The streams of python and numpy do not show their seed. They
    stay different if they are in the state to which torch's seed would set them, as a helper that seeds all three leaves
    them. Otherwise they may be unseeded, and are made equal. A message says which streams differ. A split that is drawn from
    a stream that differs is different on each rank; `prepare` takes rank 0's. If XLA runs one program over all processes, all
    streams are made equal.

    Returns the names of the streams that stay different.
    """
    if comm.world == 1:
        return set()
    comm.agree("the first Accelerator() of every process")
    table: list[tuple[int, set[str]]] = comm.all_gather_object(_seeded())
    seeds = [seed for seed, _ in table]
    apart: set[str] = set()
    if 0 < max(seeds) - min(seeds) < NEAR:
        apart = set.intersection(*(names for _, names in table)) if comm.averages else set()
        _announce(comm, seeds, apart)
    restore(comm.broadcast_object(capture(tuple(name for name in COMMON if name not in apart))))
    checks.held("seeds")
    return apart


def _seeded() -> tuple[int, set[str]]:
    """torch's seed, and the streams of this process that are known to be seeded with it."""
    seed = torch.initial_seed()
    names = {"torch"}
    if random.getstate() == random.Random(seed).getstate():
        names.add("python")
    fresh: Any = numpy.random.RandomState(seed % 2**32).get_state()
    now: Any = numpy.random.get_state()
    if fresh[2:] == now[2:] and (fresh[1] == now[1]).all():
        names.add("numpy")
    return seed, names


def _announce(comm: Comm, seeds: list[int], apart: set[str]) -> None:
    if comm.rank != 0:
        return
    kept = [name for name in COMMON if name in apart]
    copied = [name for name in COMMON if name not in apart]
    shown = ", ".join(map(str, seeds[:3])) + (", ..." if len(seeds) > 3 else "")
    line = f"each rank has seeded torch with a number of its own before Accelerator() ({shown})."
    if kept:
        line += f" Noise and dropout differ between the ranks: they keep their own {_listed(kept)}."
    if copied:
        line += f" They start from rank 0's {_listed(copied)}."
        if comm.averages:
            line += " For different streams throughout, call set_seed(seed, device_specific=True) after Accelerator()."
    say(line)


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]} streams" if len(names) > 1 else f"{names[0]} stream"
