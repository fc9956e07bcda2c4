"""Sources of a prepared loader's batches where every rank reads its own."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain, islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import State
from crosstrain.data.draws import Draws
from crosstrain.data.loader import Pass, PreparedLoader, Read
from crosstrain.data.order_rng import OrderRng
from crosstrain.data.rows import NotByRow, cut_rows, join_rows
from crosstrain.data.samplers import (
    RowRequests,
    SamplerPass,
    ShardedBatchSampler,
    known_length,
    own_rows,
    samples,
)
from crosstrain.data.self_sharded import RankWatch
from crosstrain.data.sharding import Batch, BatchSplit, Counts, groups, rank_steps, steps
from crosstrain.utils.nested import rows_of


class MapPass(Pass):
    """A pass over a map-style data set; the batches' counts come from its index batches."""

    def __init__(
        self,
        loader: PreparedLoader,
        batches: Iterator[Any],
        index_sampler: ShardedBatchSampler,
        drawn: SamplerPass | None,
        skip: int,
    ) -> None:
        super().__init__(loader, batches, {}, skip)
        self._index_sampler = index_sampler
        self._begun = drawn

    @property
    def start(self) -> State:
        return self._drawn.start

    def first_asked(self) -> None:
        """Do nothing: the `SamplerPass` keeps the state itself."""

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        return self._count

    def _count(self, item: Any) -> Any:
        counts = self._drawn.counts
        self.counts = counts.popleft() if counts else None
        return item if self.place is None else self.place(item)

    @property
    def _drawn(self) -> SamplerPass:
        """The order of this pass. A subclass whose `__iter__` is a generator draws it with its first batch only."""
        if self._begun is None:
            self._begun = self._index_sampler.drawn
        if self._begun is None:
            raise RuntimeError(
                f"{type(self.loader).__name__} was prepared, but gave a batch without asking for its "
                "indices: it reads through an iterator made before `prepare`, so every process would get "
                "the same batches. Create that iterator in __iter__, or prepare a plain DataLoader over the "
                "same data set."
            )
        return self._begun


class OnePass(MapPass):
    """A pass on one device, which does no work per batch; a batch's number tells its rows."""

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        return self.place

    def known_counts(self) -> Counts | None:
        size, total = self._index_sampler.how.size, samples(self._index_sampler.batches)
        if size is None or total is None:
            return None
        rows = (min(size, total - (self.done - 1) * size),)
        return Counts(rows, rows)


class MapFeed:
    """A map-style data set: each rank reads its own index batches."""

    pass_type: type[MapPass] = MapPass

    def __init__(self, raw: DataLoader[Any], index_sampler: ShardedBatchSampler) -> None:
        self.rng = index_sampler.rng
        self.index_sampler = index_sampler
        self._raw = raw

    @property
    def how(self) -> BatchSplit:
        return self.index_sampler.how

    def begin(self, loader: PreparedLoader, read: Read, skip: int, resume: State | None) -> Pass:
        index_sampler = self.index_sampler
        index_sampler.skip, index_sampler.resume, before = skip, resume, index_sampler.drawn
        index_sampler.rewind = loader.restarts_workers()
        try:
            with self.rng.draws.common():
                batches = iter(read())
            drawn = None if index_sampler.drawn is before else index_sampler.drawn
            if drawn is not None and resume is not None:
                drawn.prime()
        finally:
            self.rng.close()
        kind = OnePass if self.how.alone else self.pass_type
        return kind(loader, batches, index_sampler, drawn, skip)

    def length(self) -> int | None:
        # Without sharding a subclass's own len() counts, as it does in the user's plain loop.
        return known_length(self)

    def __len__(self) -> int:
        return len(self._raw if self.how.alone else self.index_sampler)


class StreamFeed:
    """An iterable data set in one process, with the user's own batches."""

    pass_type: type[Pass] = Pass
    watch: RankWatch | None = None

    def __init__(self, raw: DataLoader[Any], how: BatchSplit, rng: OrderRng) -> None:
        self.how = how
        self.rng = rng
        self.index_sampler = raw._index_sampler
        self._raw = raw
        self._first: Any = None  # the first of the batches that were skipped

    def begin(self, loader: PreparedLoader, read: Read, skip: int, resume: State | None) -> Pass:
        # Batches that are read again leave the streams where the interrupted pass had them.
        with self.rng.draws.apart() if resume is not None else nullcontext():
            batches, start = self._begin(loader, read, skip, resume)
        return self.pass_type(loader, batches, start, skip)

    def _begin(
        self, loader: PreparedLoader, read: Read, skip: int, resume: State | None
    ) -> tuple[Iterator[Any], State]:
        start = self.rng.open(resume)
        rewind = loader.restarts_workers()
        try:
            with self.watch or nullcontext():
                batches = iter(read())
            if self.watch is not None and not skip:
                batches = self.watch.first(batches)
            if rewind:
                self.rng.rewind()
            if skip or resume is not None:
                start = self.rng.order(start)
            self._first = next(islice(batches, 1), None) if skip else None
            for _ in islice(batches, skip - 1 if skip else 0):
                pass
        finally:
            self.rng.close()
        return batches, start

    def length(self) -> int | None:
        # Workers may split a stream into more batches than its length says; only reading then shows how many.
        return known_length(self._raw) if self._raw.num_workers == 0 else None

    def __len__(self) -> int:
        return len(self._raw)


class WrappedStream(IterableDataset[Any]):
    """An iterable data set around another one, whose attributes it has."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getattr__(self, name: str) -> Any:
        if name == "dataset":  # not yet unpickled
            raise AttributeError(name)
        return getattr(self.dataset, name)


class StreamShard(WrappedStream):
    """This rank's rows of a stream that every rank reads in full."""

    def __init__(self, dataset: Any, how: BatchSplit) -> None:
        super().__init__(dataset)
        self.how = how
        self.counts: deque[Counts] = deque()

    def __iter__(self) -> Iterator[Any]:
        rows = iter(self.dataset)  # now, as in a plain loader
        return chain.from_iterable(self._steps(rows))  # torch asks row by row, for which a generator is slow

    def _steps(self, rows: Iterator[Any]) -> Iterator[Batch]:
        size = self.how.size
        batches = groups(rows, size) if size is not None else ([row] for row in rows)
        own_steps = rank_steps(batches, self.how)
        # Set by `StatefulStream`: rows read again only to complete the last step.
        if getattr(self.dataset, "unasked", False):
            next(own_steps, None)
        for own, counts in own_steps:
            if own is None:
                return
            self.counts.append(counts)
            yield own


class CountingCollate:
    """Collates rows and returns the step's counts with them, so that both come from the worker together."""

    def __init__(self, shard: StreamShard, collate: Callable[[Any], Any]) -> None:
        self.shard = shard
        self.collate = collate

    def __call__(self, rows: Any) -> tuple[Any, Counts]:
        return self.collate(rows), self.shard.counts.popleft()


class StreamShardPass(Pass):
    """A pass whose batches come with their counts."""

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        return self._unpack

    def _unpack(self, item: tuple[Any, Any]) -> Any:
        batch, counts = item
        self.counts = Counts(*map(tuple, counts))
        return batch if self.place is None else self.place(batch)


class StreamShardFeed(StreamFeed):
    """An iterable data set with dispatch_batches=False: every rank reads the whole stream and keeps its own rows."""

    pass_type = StreamShardPass

    def __init__(self, raw: DataLoader[Any], how: BatchSplit, rng: OrderRng, watch: RankWatch | None) -> None:
        super().__init__(raw, how, rng)
        self.watch = watch
        if how.size is not None:
            self.index_sampler = RowRequests(own_rows(how))

    def _begin(
        self, loader: PreparedLoader, read: Read, skip: int, resume: State | None
    ) -> tuple[Iterator[Any], State]:
        batches, start = super()._begin(loader, read, skip, resume)
        in_workers = self._raw.num_workers > 0
        return batches if in_workers else self.rng.draws.read_common(batches), start

    def length(self) -> int | None:
        return known_length(self) if self._raw.num_workers == 0 else None

    def __len__(self) -> int:
        dataset: Any = self._raw.dataset
        rows = len(dataset)
        return steps(-(-rows // (self.how.size or 1)), self.how, rows if self.how.size else None)


class NodeShardFeed(StreamFeed):
    """An iterable data set made of shards (`dataset.shard(num_shards, index)`): each rank reads its own.

    No rank knows in advance how many rows the others have. Unless even_batches=False, the ranks exchange the numbers
    in every step, so that all end with the same step. A rank that has run out repeats its first batch, whose rows
    then do not count as real.
    """

    def __init__(
        self, raw: DataLoader[Any], how: BatchSplit, rng: OrderRng, comm: Comm, draws: Draws
    ) -> None:
        super().__init__(raw, how, rng)
        self._comm = comm
        self._draws = draws
        if how.size is not None:
            self.index_sampler = RowRequests(own_rows(how))

    def begin(self, loader: PreparedLoader, read: Read, skip: int, resume: State | None) -> Pass:
        with self._draws.apart():
            run = super().begin(loader, read, skip, resume)
        if resume is None:
            self._draws.draw_for_iter(self._raw.generator)
        if self.how.even is False:
            return run
        return NodeShardPass(loader, run, self._first, self.how, self._comm)

    def length(self) -> int | None:
        return None

    def __len__(self) -> int:
        raise TypeError(
            f"{type(self._raw.dataset).__name__} is read in shards, one or more for each process: its length "
            "in batches is not known before it was read."
        )


class NodeShardPass(Pass):
    """A pass in which the ranks tell each other in every step whether they have more rows."""

    def __init__(self, loader: PreparedLoader, run: Pass, first: Any, how: BatchSplit, comm: Comm) -> None:
        super().__init__(loader, iter(()), run.start, run.done)
        self._own = run.batches
        self._how = how
        self._comm = comm
        self._last = False
        self._first = first
        self.batches = self._in_step()

    @property
    def at_end(self) -> bool:
        return self._last

    def _in_step(self) -> Iterator[Any]:
        goes_on = all if self._how.drop_last else any
        ahead = next(self._own, None)
        held = self._comm.all_gather_object(_rows(ahead))
        while goes_on(held):
            batch, real = self._complete(ahead, held), held
            if ahead is not None:
                ahead = next(self._own, None)
            held = self._comm.all_gather_object(_rows(ahead))
            self._last = not goes_on(held)
            yield batch, real

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        return self._unpack

    def _unpack(self, item: tuple[Any, list[int]]) -> Any:
        batch, real = item
        width = max(real) if self._how.even is True else None
        rows = tuple(width or n or 1 for n in real)
        self.counts = Counts(rows, tuple(real))
        return batch if self.place is None else self.place(batch)

    def _complete(self, batch: Any, held: list[int]) -> Any:
        """This rank's batch of a step in which rank r has held[r] rows."""
        if self._first is None:
            self._first = copy.deepcopy(batch)  # the user may change the batch in place
            if not all(held):
                raise RuntimeError(
                    f"{type(self.loader.dataset).__name__}: process {held.index(0)} has no rows in its "
                    "shards. Use more shards, or dispatch_batches=True."
                )
        if self._how.even == "weighted":
            return cut_rows(self._first, 0, 1) if batch is None else batch
        wanted, parts = max(held), [] if batch is None else [batch]
        try:
            while (have := sum(map(_rows, parts))) < wanted:
                parts.append(cut_rows(self._first, 0, wanted - have))
            return join_rows(parts)
        except NotByRow:
            raise RuntimeError(
                f"a batch of {type(self.loader.dataset).__name__} cannot be completed by row to the {wanted} "
                'rows that other processes have. Use even_batches="weighted", even_batches=False or '
                "drop_last=True."
            ) from None


def _rows(batch: Any) -> int:
    """The number of rows of a batch, 0 without a batch; a batch that has no rows counts as one."""
    return 0 if batch is None else (1 if (n := rows_of(batch)) is None else n)
