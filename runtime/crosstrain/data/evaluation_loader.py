"""The loaders of evaluations: each process iterates a block of the original's batches, or all of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import State
from crosstrain.data.batch_sources import MapFeed, MapPass
from crosstrain.data.counted import Counted
from crosstrain.data.loader import Pass, PreparedLoader, Read, unprepared
from crosstrain.data.samplers import ShardedBatchSampler, known_length
from crosstrain.data.sharding import Batch, Counts


class BlockBatchSampler(ShardedBatchSampler):
    """The index sampler of an evaluation loader: the batches of this rank's block.

    Every rank walks over the whole order, so that samplers and generators are left as one process leaves them.
    """

    @property
    def block(self) -> range:
        """The original's indices of this rank's batches. The first batch is the main process's, which prints."""
        batches, how = len(self.batches), self.how
        return range(-(-how.part * batches // how.parts), -(-(how.part + 1) * batches // how.parts))

    def __len__(self) -> int:
        return len(self.block)

    def steps(self, walk: Iterator[Batch]) -> Iterator[tuple[Batch | None, Counts | None]]:
        block, last = self.block, self.how.part == self.how.parts - 1
        # The last block takes what a sampler gives beyond its length, so that no batch is missed.
        for batch in islice(walk, block.start, None if last else block.stop):
            yield batch, None
        deque(walk, maxlen=0)


class EvaluationPass(MapPass):
    """A pass over an evaluation loader, in which no rows are counted."""

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        return self.place


class EvaluationFeed(MapFeed):
    """The source of an evaluation loader's batches, which remembers whether the loops over it were complete."""

    pass_type = EvaluationPass

    def __init__(self, raw: DataLoader[Any], index_sampler: ShardedBatchSampler) -> None:
        super().__init__(raw, index_sampler)
        self._passes: list[Pass] = []
        self._merged = False

    def begin(self, loader: PreparedLoader, read: Read, skip: int, resume: State | None) -> Pass:
        run = super().begin(loader, read, skip, resume)
        if self._merged:
            self._passes, self._merged = [], False
        self._passes.append(run)
        return run

    def taken(self) -> tuple[int, int]:
        """How many batches the latest complete pass took, or else the latest one, and how many it has for this rank.

        (-1, 0) if there was none. Passes from before the last call are forgotten with the next one.
        """
        self._merged = True
        seen = [(run.done, run.length or 0) for run in self._passes]
        complete = [counts for counts in seen if counts[0] >= counts[1]]
        return (complete or seen or [(-1, 0)])[-1]


class EvaluationLoader(PreparedLoader):
    """A loader of which each rank iterates its block of batches; `len` and all else are the original's.

    whole: False; `WholeLoader` is the other kind. number: counts the evaluation loaders of a run.
    """

    whole = False
    _crosstrain_number: int

    def __len__(self) -> int:
        return len(self._crosstrain.raw)

    def taken(self) -> tuple[int, int]:
        """See `EvaluationFeed.taken`."""
        feed = self._crosstrain.feed
        assert isinstance(feed, EvaluationFeed)
        return feed.taken()

    @property
    def own_length(self) -> int:
        """The number of batches of this process."""
        return len(self._crosstrain.feed)

    @property
    def start(self) -> int:
        """The original's index of this process's first batch."""
        sampler = self._crosstrain.feed.index_sampler
        return sampler.block.start if isinstance(sampler, BlockBatchSampler) else 0

    @property
    def total_batch_size(self) -> int | None:
        """The number of rows of a batch, which is one process's."""
        return self.batch_size


class WholeLoader(DataLoader[Any]):
    """A loader that every process iterates as a whole, like the original, with the batches on the device.

    whole: True. start: 0, the original's index of the first batch.
    """

    whole = True
    start = 0
    _crosstrain_whole: tuple[DataLoader[Any], Comm, Any]

    @property
    def own_length(self) -> int | None:
        """The number of batches; None where it is not known."""
        return known_length(self)

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        _, comm, place = self._crosstrain_whole
        batches = super().__iter__()
        return batches if place is None else Counted(_placed(batches, comm, place), self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return unprepared, (self._crosstrain_whole[0],)


def _placed(batches: Iterator[Any], comm: Comm, place: Any) -> Generator[Any, None, None]:
    for batch in batches:
        yield place(batch)
        comm.batch_done()


def source_of(loader: Any) -> Any:
    """The user's own loader of a prepared one; anything else as it is."""
    if isinstance(loader, PreparedLoader):
        return loader._crosstrain.raw
    return loader._crosstrain_whole[0] if isinstance(loader, WholeLoader) else loader


def inside_of(given: Any) -> Any:
    """The loader inside a progress bar, such as tqdm's; anything else as it is."""
    while not isinstance(given, DataLoader) and getattr(given, "iterable", None) is not None:
        given = given.iterable
    return given
