"""Random streams when a run starts: the same on every rank, but for those that the script has set apart."""

from __future__ import annotations

import random
import sys

import torch

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import COMMON, capture, restore
from crosstrain.utils import checks
from crosstrain.utils.messages import say

NEAR = (
    2**24
)  # how far apart the seeds of one script's ranks may be: two random ones are so once in 2**28 runs


def start_streams_alike(comm: Comm) -> None:
    """Give every rank rank 0's python, numpy and torch streams, but for those that the script has set apart.

    accelerate leaves the ranks' streams as they are: an unseeded `random_split` then gives each rank another
    split, and training items leak into validation. So what nobody seeded is made alike.

    A script that calls ``torch.manual_seed(seed + rank)`` before `Accelerator` wants other noise on every rank, and
    keeps it, as it would by the same call behind `Accelerator`: seeds that differ, by less than `NEAR`, are no
    accident, because a generator that nobody seeded begins with a random number of 53 bits. Streams of python and
    numpy do not tell their seed. They stay apart where they are just as the same seed makes them, which is what a
    helper that seeds all three leaves behind; otherwise they may be unseeded, and are made alike. A line says which
    are which. A split that is drawn from streams that stay apart differs by rank, and `prepare` refuses it. Where
    XLA runs one program over all processes nothing stays apart.
    """
    if comm.world == 1:
        return
    table: list[tuple[int, set[str]]] = comm.all_gather_object(_seeded())
    seeds = [seed for seed, _ in table]
    apart: set[str] = set()
    if 0 < max(seeds) - min(seeds) < NEAR:
        apart = set.intersection(*(names for _, names in table)) if comm.averages else set()
        _announce(comm, seeds, apart)
    restore(comm.broadcast_object(capture(tuple(name for name in COMMON if name not in apart))))
    checks.held("seeds")


def _seeded() -> tuple[int, set[str]]:
    """torch's seed, and the streams of this process that are known to have been given it."""
    seed = torch.initial_seed()
    names = {"torch"}
    if random.getstate() == random.Random(seed).getstate():
        names.add("python")
    if numpy := sys.modules.get("numpy"):
        fresh, now = numpy.random.RandomState(seed % 2**32).get_state(), numpy.random.get_state()
        if fresh[2:] == now[2:] and (fresh[1] == now[1]).all():
            names.add("numpy")
    return seed, names


def _announce(comm: Comm, seeds: list[int], apart: set[str]) -> None:
    if comm.rank != 0:
        return
    kept = [name for name in COMMON if name in apart]
    copied = [name for name in COMMON if name not in apart and (name != "numpy" or name in sys.modules)]
    shown = ", ".join(map(str, seeds[:3])) + (", ..." if len(seeds) > 3 else "")
    line = f"each rank has seeded torch with a number of its own before Accelerator() ({shown})."
    if kept:
        line += f" Noise and dropout differ between the ranks: they keep their own {_listed(kept)}."
    if copied:
        line += f" They start from rank 0's {_listed(copied)}."
        if comm.averages:
            line += (
                " To set all streams apart, call set_seed(seed, device_specific=True) after Accelerator()."
            )
    say(line)


def _listed(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]} streams" if len(names) > 1 else f"{names[0]} stream"
