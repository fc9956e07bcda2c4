"""Dispatched loaders: process 0 reads the data and sends each process its part.

A step is one scatter of flat buffers, each with a header of fixed size and the bytes of that process's tensors. The
header has the step's number and kind, the counts of all ranks, which ranks are at their last batch, and the shapes. How
the tensors nest is sent only where it changes. Batches that hold more than plain tensors, or whose shapes differ from
rank to rank, are sent as pickled objects in the same buffers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset

from crosstrain.comm.placement import host
from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import State, capture, restore
from crosstrain.data.counted import failing
from crosstrain.data.dispatch_channel import Agreed, Channel, Step
from crosstrain.data.draws import Draws
from crosstrain.data.loader import Pass, PreparedLoader, Read
from crosstrain.data.order_rng import OrderRng
from crosstrain.data.rows import NotByRow, cut_rows, join_rows
from crosstrain.data.samplers import SamplerPass, ShardedBatchSampler, known_length, samples
from crosstrain.data.self_sharded import RankWatch
from crosstrain.data.sharding import BatchSplit, Counts, cut, groups, steps
from crosstrain.utils.nested import rows_of


class Divider:
    """Divides the whole batches that process 0 reads into steps."""

    def __init__(self, how: BatchSplit) -> None:
        self._how = how
        self._first: Any = None

    def steps(self, batches: Iterator[Any], length: int | None) -> Iterator[Step]:
        """The steps of one pass. A step is read ahead only where ``length`` does not tell that another one follows."""
        walk = groups(batches, self._how.group)
        made = (step for group in walk if (step := self._divide(group)) is not None)
        ahead: list[tuple[list[Any], Counts]] = []
        number = 0
        while held := ahead or list(islice(made, 1)):
            number += 1
            sure = length is not None and number < length and self._how.even is not False
            ahead = [] if sure else list(islice(made, 1))
            following = ahead[0][1].rows if ahead else (1 if sure else 0,) * self._how.parts
            yield Step(*held[0], last=tuple(rows == 0 for rows in following))

    def _divide(self, group: list[Any]) -> tuple[list[Any], Counts] | None:
        how = self._how
        if self._first is None and how.even is True and not how.drop_last:
            self._first = copy.deepcopy(group[0])  # the user may change the batch in place
        held = [1 if (n := rows_of(batch)) is None else n for batch in group]
        full = sum(held) if how.full is None else how.full
        if how.drop_last and (sum(held) < full or len(group) < how.group):
            return None
        if not how.split and how.devices == 1 and len(group) == how.parts and sum(held) >= full:
            return group, Counts(tuple(held), tuple(held))
        if not how.split and how.size is None:
            return self._by_batch(group, held)
        try:
            return self._by_row(group, sum(held))
        except NotByRow as error:
            if not how.split:
                return self._by_batch(group, held)
            raise ValueError(
                f"split_batches=True cannot cut a batch over {how.parts} processes: {error}."
            ) from error

    def _by_row(self, group: list[Any], n: int) -> tuple[list[Any], Counts]:
        how = self._how
        # A short step is completed to a multiple of the ranks, not to a full step, so that fewer rows repeat.
        # Where a rank feeds several devices, its steps keep their shape.
        complete = how.even is True and how.devices == 1
        piece = cut(n, how.parts, -(-n // how.parts) if complete else how.width, how.even)
        whole = join_rows(group)
        short = max(hi for _, hi in piece.bounds) - n
        if short > 0:
            size = rows_of(self._first) or 1
            fill = [cut_rows(self._first, 0, min(size, short - at)) for at in range(0, short, size)]
            whole = join_rows([whole, *fill])
        return [cut_rows(whole, lo, hi) if hi > lo else None for lo, hi in piece.bounds], piece.counts

    def _by_batch(self, group: list[Any], held: list[int]) -> tuple[list[Any], Counts]:
        if self._how.devices > 1:
            raise ValueError(
                f"batches of {held} rows cannot be cut for the {self._how.devices} devices of each process: "
                "their parts differ in shape or number of rows. Make all batches alike, or use "
                "dispatch_batches=False."
            )
        missing = self._how.parts - len(group)
        spare: Any = None
        if self._how.even == "weighted":
            spare = _first_row(group[0])
        elif self._how.even:
            spare = self._first
        rows = 0 if spare is None else rows_of(spare) or 1
        return group + [spare] * missing, Counts((*held, *(rows,) * missing), (*held, *(0,) * missing))


class DispatchFeed:
    """A source whose batches process 0 reads from the user's loader; the others receive their parts."""

    def __init__(
        self,
        raw: DataLoader[Any],
        index_sampler: Any,
        how: BatchSplit,
        rng: OrderRng,
        comm: Comm,
        on_device: bool,
        watch: RankWatch | None,
        draws: Draws,
    ) -> None:
        self.how = how
        self.rng = rng
        self.index_sampler = index_sampler
        self._raw = raw
        self._comm = comm
        self._watch = watch
        self._draws = draws
        self._device = comm.landing if on_device else host()
        self._serial = 0
        self._agreed = Agreed()

    def begin(self, loader: PreparedLoader, read: Read, skip: int, resume: State | None) -> Pass:
        channel = Channel(self._comm, self._serial, self._agreed, self._device)
        self._serial += 1
        with self._draws.apart() if self._comm.rank == 0 else nullcontext():
            run = self._begin(channel, loader, read, skip, resume)
        if resume is None:
            self._draws.draw_for_iter(self._raw.generator)
        return run

    def _begin(
        self, channel: Channel, loader: PreparedLoader, read: Read, skip: int, resume: State | None
    ) -> Pass:
        if self._comm.rank:
            return DispatchPass(loader, channel, None, {"generators": self.rng.generator_states()}, skip)
        own = capture(("torch", "python", "numpy")) if skip else {}
        start = self.rng.open(resume)
        try:
            batches, start = self._read(loader, read, skip, resume, start)
            made = Divider(self.how).steps(batches, self._known_steps())
            for _ in islice(made, skip):  # read although skipped: the first batch may complete the last
                pass
        except Exception as error:  # the others are told when they ask for the first batch
            made = failing(error)
        finally:
            self.rng.close()
            restore(own)
        if self._watch is not None:
            made = self._watch.first(made)
        sampler = self._sampler
        return DispatchPass(loader, channel, made, start, skip, None if sampler is None else sampler.drawn)

    @property
    def _sampler(self) -> ShardedBatchSampler | None:
        """The index sampler of a map-style data set; None for a stream."""
        return self.index_sampler if isinstance(self.index_sampler, ShardedBatchSampler) else None

    def _read(
        self, loader: PreparedLoader, read: Read, skip: int, resume: State | None, start: State
    ) -> tuple[Iterator[Any], State]:
        """The whole batches of a pass, and the random state in which it began."""
        rewind = loader.restarts_workers()
        sampler = self._sampler
        if sampler is not None:
            sampler.rewind = rewind
        with self._watch or nullcontext():
            batches = iter(read())
        if rewind:
            self.rng.rewind()
        if sampler is None and (skip or resume is not None):
            start = self.rng.order(start)
        return batches, start

    def length(self) -> int | None:
        return None  # each step says who has its last batch

    def __len__(self) -> int:
        if not isinstance(self._raw.dataset, IterableDataset):
            batches = self._raw._index_sampler
            return steps(len(batches), self.how, samples(batches))
        if self.how.size is None:
            return steps(len(self._raw), self.how)
        dataset: Any = self._raw.dataset
        rows = len(dataset)
        return steps(-(-rows // self.how.size), self.how, rows)

    def _known_steps(self) -> int | None:
        if self._raw.num_workers and isinstance(self._raw.dataset, IterableDataset):
            return None  # workers may split the stream into more batches
        return known_length(self)


class DispatchPass(Pass):
    """One pass of a dispatched loader.

    made: the steps, on process 0; None elsewhere. drawn: the order of a map-style data set.
    """

    def __init__(
        self,
        loader: PreparedLoader,
        channel: Channel,
        made: Iterator[Step] | None,
        start: State,
        skip: int,
        drawn: SamplerPass | None = None,
    ) -> None:
        super().__init__(loader, iter(()), start, skip)
        self._drawn = drawn
        self._channel = channel
        self._rank = loader._crosstrain.comm.rank
        self._last = False
        self.batches = self._received() if made is None else self._sent(made)

    @property
    def at_end(self) -> bool:
        return self._last

    @property
    def start(self) -> State:
        return self._start if self._drawn is None else self._drawn.start

    def first_asked(self) -> None:
        if self._rank == 0 and self._drawn is None:
            super().first_asked()

    def left(self) -> None:
        if self._rank == 0:  # the others have the last batch that was sent, or will get it
            self._channel.flush(leaving=True)

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        return self._unpack

    def _unpack(self, item: tuple[Any, Step]) -> Any:
        part, step = item
        self.counts, self._last = step.counts, step.last[self._rank]
        return part if self.place is None else self.place(part)

    def _sent(self, made: Iterator[Step]) -> Iterator[Any]:
        last = False
        while not last:
            try:
                step = next(made, None)
                packed = None if step is None else self._channel.pack(step)
            except Exception as error:
                self._channel.fail(error)
                raise
            if step is None or packed is None:
                return self._channel.stop()
            self._channel.send(step, packed)
            last = all(step.last)
            if last:
                self._channel.flush()
            if step.parts[0] is not None:
                yield step.parts[0], step

    def _received(self) -> Iterator[Any]:
        last = False
        while not last:
            received = self._channel.receive()
            if received is None:
                return
            part, step = received
            last = all(step.last)
            if part is not None:
                yield part, step


def _first_row(batch: Any) -> Any:
    try:
        return cut_rows(batch, 0, 1)
    except NotByRow:
        return batch
