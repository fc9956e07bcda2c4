"""Seeds with which the loader workers of different processes draw different numbers."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy
import torch
from torch.utils.data import get_worker_info

_MASK = (1 << 63) - 1


class WorkerInits:
    """A `worker_init_fn` that calls several, one after the other; the user's own among them may be None."""

    def __init__(self, *functions: Callable[[int], None] | None) -> None:
        self.functions = [function for function in functions if function is not None]

    def __call__(self, worker: int) -> None:
        for function in self.functions:
            function(worker)


class SeedByRank:
    """A `worker_init_fn` that mixes the process's rank into the worker's seed, and into what the user's own one seeds.

    Torch seeds worker w of a loader with base_seed + w, and after `set_seed` the base seed is the same in every
    process, so that all processes would augment in the same way; so they would where the user's own function seeds by
    the worker's number, `numpy.random.seed(42 + worker)`. Process 0 keeps torch's seeds and the user's.
    """

    def __init__(self, rank: int, own: Callable[[int], None] | None = None) -> None:
        self.rank = rank
        self.own = own

    def __call__(self, worker: int) -> None:
        if self.rank:
            self._seed()
        before = _seeds()
        if self.own is not None:
            self.own(worker)
        if self.rank and self.own is not None:
            self._part(before)

    def _seed(self) -> None:
        seed = mix(torch.initial_seed(), self.rank)
        torch.manual_seed(seed)
        random.seed(seed)
        numpy.random.seed([seed & 0xFFFFFFFF, seed >> 32])
        info = get_worker_info()
        if info is not None:
            # Data sets that seed themselves read the seed here; WorkerInfo forbids assignment.
            object.__setattr__(info, "seed", seed)

    def _part(self, before: tuple[object, bytes, int]) -> None:
        """Mix the rank into each generator that has another seed than before."""
        python, numbers, seed = _seeds()
        if python != before[0]:
            random.seed(mix(random.getrandbits(63), self.rank))
        if numbers != before[1]:
            numpy.random.seed([*numpy.frombuffer(numbers, "u4")[:2], self.rank])
        if seed != before[2]:
            torch.manual_seed(mix(seed, self.rank))


def _seeds() -> tuple[object, bytes, int]:
    return (
        random.getstate(),
        numpy.random.get_state(legacy=False)["state"]["key"].tobytes(),
        torch.initial_seed(),
    )


def mix(seed: int, rank: int) -> int:
    """63 bits from a seed and a rank, mixed so that neighbouring seeds and ranks differ in many bits.

    The mixing is splitmix64's: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014.
    """
    value = (seed + rank * 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
    return (value ^ (value >> 31)) & _MASK
