"""Samplers between a loader's own sampler and the batches that this rank reads."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice, repeat
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import State
from crosstrain.data.order_rng import OrderRng, Reach
from crosstrain.data.sharding import Batch, BatchSplit, Counts, cut, rank_steps, steps
from crosstrain.utils import checks


class SeedableRandomSampler(RandomSampler):
    """A random sampler whose order is a function of (seed, epoch), whatever else draws random numbers.

    It takes RandomSampler's arguments and ``data_seed``, by default `torch.initial_seed()`. The epoch advances with
    each completed pass.
    """

    def __init__(self, *args: Any, data_seed: int | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial_seed = torch.initial_seed() if data_seed is None else data_seed
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        if self.generator is None:
            self.generator = torch.Generator()
        self.generator.manual_seed(self.initial_seed + self.epoch)
        yield from super().__iter__()
        self.set_epoch(self.epoch + 1)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass."""
        self.epoch = epoch


class SkipBatchSampler(BatchSampler):
    """A batch sampler without its first `skip_batches` batches, which are not read."""

    batch_size: int | None  # type: ignore[assignment]

    def __init__(self, batch_sampler: Any, skip_batches: int = 0) -> None:
        self.batch_sampler = batch_sampler
        self.skip_batches = skip_batches
        self.sampler = getattr(batch_sampler, "sampler", batch_sampler)
        self.batch_size = getattr(batch_sampler, "batch_size", None)
        self.drop_last = getattr(batch_sampler, "drop_last", False)

    def __iter__(self) -> Iterator[list[int]]:
        return islice(iter(self.batch_sampler), self.skip_batches, None)

    def __len__(self) -> int:
        return max(0, len(self.batch_sampler) - self.skip_batches)


class ShardedBatchSampler:
    """The index sampler of a prepared map-style loader, which gives this rank's share of the user's own batches.

    With several processes it is also the loader's `batch_sampler`, with the other attributes of the user's own.

    batches: the user's batch sampler, or the sampler of a loader with batch_size=None. Then `single` is true, and every
        index counts as a batch of one row.
    check: whether to compare the first step over the ranks, for samplers whose source of randomness is unknown.
    early: whether the order may be drawn in iter(), by workers that read ahead or by the sampler itself.
    skip, resume: how many batches the next pass leaves out, and the random state in which it begins; the loader sets
        them before each pass.
    rewind: whether to undo what torch drew to seed workers, so that it does not change the order.
    drawn: the pass that began last.
    """

    def __init__(
        self,
        batches: Any,
        how: BatchSplit,
        rng: OrderRng,
        comm: Comm,
        *,
        single: bool,
        check: bool,
        early: bool,
    ) -> None:
        self.batches = batches
        self.how = how
        self.single = single
        self.rng = rng
        self.skip = 0
        self.resume: State | None = None
        self.rewind = False
        self.drawn: SamplerPass | None = None
        self.early = early
        self._comm = comm
        self._check = check

    @property
    def batch_sampler(self) -> Any:
        """The user's own batch sampler."""
        return self.batches

    def __getattr__(self, name: str) -> Any:
        if name == "batches":  # not yet unpickled
            raise AttributeError(name)
        return getattr(self.batches, name)

    def __iter__(self) -> Iterator[Any]:
        # A sampler may draw here or at its first batch. Either way it draws when plain PyTorch would, also for an
        # iterator that is thrown away before its first batch.
        if self.early or self.resume is not None:
            self.rng.open(self.resume)
        if self.rewind:
            self.rng.rewind()
        walk: Iterator[Any] = iter(self.batches)
        if self.single and not self.how.alone:
            walk = ([index] for index in walk)
        self.drawn = SamplerPass(self, walk)
        return self.drawn.own()

    def __len__(self) -> int:
        """The number of batches of a whole pass on this rank."""
        return steps(len(self.batches), self.how, samples(self.batches))

    def steps(self, walk: Iterator[Batch]) -> Iterator[tuple[Batch | None, Counts | None]]:
        """This rank's batches of a walk over all batches, each with the step's counts if they are known."""
        return rank_steps(walk, self.how)

    def compare_first(self, walk: Iterator[Batch]) -> Iterator[Batch]:
        """The same walk, after comparing its first step over the ranks (collective); RuntimeError where they differ."""
        if not self._check:
            return walk
        head = list(islice(walk, self.how.group))
        try:
            mine = [[int(index) for index in batch] for batch in head]
        except (TypeError, ValueError):  # indices other than numbers cannot be compared in general
            mine = []
        for rank, other in enumerate(self._comm.all_gather_object(mine)):
            if other != mine:
                message = (
                    f"the sampler {type(self.batches).__name__} gives process {rank} another order than "
                    f"process {self._comm.rank} (first batches {other} and {mine}): it draws from a source "
                    "of its own that differs by process. Seed that source, or keep a torch.Generator in the "
                    "sampler's attribute `generator`, which is copied from process 0 at the start of each "
                    "pass."
                )
                checks.failed("loader", message)
                raise RuntimeError(message)
        return chain(head, walk)


class SamplerPass:
    """One pass of a `ShardedBatchSampler`, with the state it began in.

    counts: those of the steps that were drawn and are not yet used; one process needs none, since its batches are the
    user's.
    """

    def __init__(self, sampler: ShardedBatchSampler, walk: Iterator[Batch]) -> None:
        self.start: State = {}  # known with the first batch
        self.counts: deque[Counts | None] = deque()
        self._sampler = sampler
        self._walk = walk
        self._skip = sampler.skip
        self._begun = sampler.rng.start
        self._primed = False

    def prime(self) -> None:
        """Draw the first step, with the random state of the order installed."""
        if self._primed:
            return
        self._primed = True
        sampler = self._sampler
        try:
            installed = sampler.rng.open()
            self.start = sampler.rng.order(self._begun or installed)
            mine = self._walk if sampler.how.alone else self._own_steps(sampler.compare_first(self._walk))
            first = list(islice(mine, self._skip, self._skip + 1))
            if self._skip:
                self.counts = deque(list(self.counts)[self._skip :])
            self._walk = chain(first, sampler.rng.reading(mine))
        finally:
            sampler.rng.close()

    def own(self) -> Iterator[Any]:
        """This rank's index batches."""
        self.prime()
        yield from self._walk

    def _own_steps(self, walk: Iterator[Batch]) -> Iterator[Any]:
        single = self._sampler.single
        for own, counts in self._sampler.steps(walk):
            if own is None:
                return
            self.counts.append(counts)
            yield own[0] if single else own


class RowRequests:
    """The index sampler of a stream that gives this rank's rows only: it asks for the rows of one step, endlessly."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def __iter__(self) -> Iterator[list[None]]:
        return repeat([None] * self._rows)


def own_rows(how: BatchSplit) -> int:
    """The number of rows that this rank holds in a full step of a stream."""
    assert how.full is not None, "a stream without batches has no rows to count"
    return cut(how.full, how.parts, how.width, how.even).counts.rows[how.part]


def reach(batches: Any) -> Reach:
    """The streams that the order of this sampler or batch sampler may be drawn from."""
    if isinstance(batches, SkipBatchSampler):
        return reach(batches.batch_sampler)
    if type(batches) is BatchSampler:
        return reach(batches.sampler)
    if type(batches) in (SequentialSampler, SeedableRandomSampler, list, tuple, range):
        return "nothing"
    if type(batches).__iter__ is DistributedSampler.__iter__:
        return "nothing"  # draws from a generator of its own, made from seed and epoch
    if type(batches) in (RandomSampler, SubsetRandomSampler, WeightedRandomSampler):
        return "torch"
    return "anything"


def samples(batches: Any) -> int | None:
    """The number of rows in one pass over a batch sampler; None where only the pass itself tells."""
    if type(batches) is not BatchSampler:
        return None
    return known_length(batches.sampler)


def known_length(owner: Any) -> int | None:
    """``len(owner)``; None where it has no length."""
    try:
        return len(owner)
    except (TypeError, NotImplementedError):
        return None


def generators(*owners: Any) -> list[torch.Generator]:
    """The torch generators of these objects and of the samplers inside them, each once."""
    found: dict[int, torch.Generator] = {}
    for owner in owners:
        for holder in (owner, getattr(owner, "sampler", None), getattr(owner, "batch_sampler", None)):
            generator = getattr(holder, "generator", None)
            if isinstance(generator, torch.Generator):
                found.setdefault(id(generator), generator)
    return list(found.values())


def seeded(batches: Any, seed: int) -> Any:
    """A copy of the (batch) sampler whose order is a function of (seed, epoch); one that is not random as it is."""
    if type(batches) is RandomSampler:
        like = (batches.data_source, batches.replacement, batches._num_samples)
        return SeedableRandomSampler(*like, data_seed=seed)
    if type(getattr(batches, "sampler", None)) is RandomSampler:
        twin = copy.copy(batches)
        twin.sampler = seeded(batches.sampler, seed)
        return twin
    return batches
