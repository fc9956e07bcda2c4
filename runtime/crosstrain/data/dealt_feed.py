"""Batches that a script makes itself, as a prepared loader's feed: each process takes its share of every group."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from types import GeneratorType
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor

from crosstrain.comm.protocol import Comm
from crosstrain.comm.random_streams import COMMON, State, capture, restore
from crosstrain.data.active_loaders import ActiveLoaders
from crosstrain.data.counted import failing
from crosstrain.data.first_items import Fingerprint
from crosstrain.data.loader import Feed, Pass, PreparedLoader, Read
from crosstrain.data.order_rng import OrderRng
from crosstrain.data.peekable import Peekable
from crosstrain.data.samplers import known_length
from crosstrain.data.sharding import BatchSplit, Counts
from crosstrain.utils import checks
from crosstrain.utils.checks import Place
from crosstrain.utils.messages import say, warn
from crosstrain.utils.nested import every_leaf, map_leaves, rows_of
from crosstrain.utils.script_frames import users_lines


class Given(NamedTuple):
    """How the script calls an iterable that it gave to `prepare`, and where."""

    name: str
    place: Place

    def __str__(self) -> str:
        return f"`{self.name}` ({self.place})"


END: Any = object()
_THERE = (list, tuple, range)
TIMED = 20  # steps after which a process says what reading the others' batches costs
DEAR = 0.1  # part of the time, from which on it says so
MOST_PARTS = 64  # of a batch that is a generator, which ends before it is compared
_said_of: set[Given] = set()  # what the main process has told about


class DealtFeed(Feed):
    """The source of a dealt iterable's batches. Every process reads all of them."""

    index_sampler = None

    def __init__(
        self, batches: Any, how: BatchSplit, rng: OrderRng, comm: Comm, active: ActiveLoaders, given: Given
    ) -> None:
        self._batches = batches
        self._active = active
        self._how = how
        self.rng = rng
        self.comm = comm
        self.given = given
        self.lines = users_lines(sys._getframe(1))
        self.told = False
        self.ahead: list[Any] = []  # what a pass over an iterator has read and not given out

    @property
    def how(self) -> BatchSplit:
        return self._how

    def begin(self, loader: PreparedLoader, read: Read, skip: int, resume: State | None) -> Pass:
        with self.common_draws():
            here = capture(COMMON)
            start: State = {"generators": []} | (here if resume is None else resume)
            if resume is not None:
                restore({name: value for name, value in start.items() if name in here})
            source = self._iterator()
            if source is self._batches:
                source = _Rest(self.ahead, source)
            firsts = list(islice(source, self._how.parts)) if skip else []
            for _ in islice(source, max(0, (skip - 1) * self._how.parts)):
                pass
            if resume is not None:
                restore(here)
        return DealtPass(loader, source, self, start, skip, firsts)

    def common_draws(self) -> AbstractContextManager[None]:
        """A context for what all processes read alike. The items of a list are there already, and draw nothing."""
        return nullcontext() if isinstance(self._batches, _THERE) else self._active.draws.common()

    def _iterator(self) -> Iterator[Any]:
        if not hasattr(self._batches, "__iter__"):
            return self._batches  # type: ignore[no-any-return]  # it has `__next__` alone
        try:
            return iter(self._batches)
        except Exception as error:
            if self._how.alone:
                raise
            return failing(error)  # where all processes compare what they have read

    def length(self) -> int | None:
        """The number of batches where it is sure: a class's own `__len__` may be its number of samples."""
        return len(self) if isinstance(self._batches, _THERE) else None

    def __len__(self) -> int:
        number = known_length(self._batches)
        if number is None:
            raise TypeError(f"object of type {type(self._batches).__name__!r} has no len()")
        whole, rest = divmod(number, self._how.parts)
        return whole + (rest > (0 if self._how.even else self._how.part))


class _Rest:
    """An iterator with what was read of it before and not given out."""

    def __init__(self, ahead: list[Any], source: Iterator[Any]) -> None:
        self._ahead = ahead
        self._source = source

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._ahead.pop(0) if self._ahead else next(self._source)


class DealtPass(Pass):
    """A pass over a dealt iterable. Batches come with the rows of all processes' batches of the step."""

    def __init__(
        self,
        loader: PreparedLoader,
        source: Iterator[Any],
        feed: DealtFeed,
        start: State,
        done: int,
        firsts: list[Any],
    ) -> None:
        alone = feed.how.alone
        super().__init__(loader, source if alone else self._deal(), start, done)
        self._source = source
        self._feed = feed
        self._firsts = firsts
        self._alone = alone
        self._reading = 0.0  # seconds for the others' batches
        self._group: list[Any] = []  # the batches of the step that was read last
        self._refilled = False  # whether the script fills the same memory again for each batch
        self._generated = False  # whether each batch is a generator of its parts

    def first_asked(self) -> None:
        """Do nothing: the state is that in which the iterable was asked for its iterator."""

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        return self.place if self._alone else self._unpack

    def _unpack(self, item: tuple[Any, Counts | None]) -> Any:
        batch, self.counts = item
        placed = batch if self.place is None else self.place(batch)
        return iter(placed) if self._generated and isinstance(placed, tuple) else placed

    def left(self) -> None:
        """Keep what was read ahead of an iterator that the script goes on with."""
        ahead = self.batches.take_ahead() if isinstance(self.batches, Peekable) else []
        if ahead and isinstance(self._source, _Rest):
            self._feed.ahead[:0] = ahead if self._alone else self._group

    def _read(self) -> Any:
        with self._feed.common_draws():
            return self._held(next(self._source, END))

    def _held(self, item: Any) -> Any:
        """The parts of a batch that is a generator, which are compared and perhaps given again: ``(c[i:j] for c in columns)``."""
        if not isinstance(item, GeneratorType):
            return item
        parts = tuple(islice(item, MOST_PARTS + 1))
        if len(parts) > MOST_PARTS:
            return chain(parts, item)  # it may be endless
        self._generated = True
        return parts

    def _read_group(self, group: list[Any]) -> list[Any]:
        """The batches of a step that begins with ``group``; fewer, or none, where the sequence ends.

        A script may fill the same memory again for each batch: then they are copied, and so are those of the first step.
        """
        before = time.perf_counter()
        last: Any = group[-1] if group else END
        group = [self._kept(batch) for batch in group]
        with self._feed.common_draws():
            while (
                len(group) < self._feed.how.parts and (more := self._held(next(self._source, END))) is not END
            ):
                self._refilled = self._refilled or (last is not END and _same_memory(last, more))
                group.append(self._kept(more))
                last = more
        self._reading += time.perf_counter() - before
        return group

    def _kept(self, batch: Any) -> Any:
        return _copied(batch) if self._refilled or not self._firsts else batch

    def _deal(self) -> Iterator[tuple[Any, Counts | None]]:
        feed = self._feed
        comm, how = feed.comm, feed.how
        item = self._first_item()
        if item is END:
            return
        if not self._alike:
            while item is not END:
                self._group = [item]
                yield item, None
                item = next(self._source, END)
            return
        begun = time.perf_counter()
        group = self._read_group([item])
        while group:
            self._firsts, self._group = self._firsts or group, group
            mine, counts = self._share(group)
            if mine is END:
                break
            yield mine, counts
            self._tell_cost(begun)
            group = [] if len(group) < how.parts else self._read_group([])
        comm.agree(f"the end of a pass over {feed.given}")

    def _share(self, group: list[Any]) -> tuple[Any, Counts | None]:
        """This process's batch of a step's, completed by the first ones, and the rows of all."""
        how, first = self._feed.how, self._firsts
        whole = group + [first[i % len(first)] for i in range(how.parts - len(group))]
        held = [rows_of(batch) for batch in whole]
        real = [rows if place < len(group) else 0 for place, rows in enumerate(held)]
        if how.even is False:
            whole, held = group + [END] * (how.parts - len(group)), real
        known = None not in held and None not in real
        counts = Counts(tuple(held), tuple(real)) if known else None  # type: ignore[arg-type]
        return whole[how.part], counts

    # -- the first item ---------------------------------------------------------------------------

    def _first_item(self) -> Any:
        """Read the first item and compare it with the other processes' (collective); END where all have none."""
        comm, given = self._feed.comm, self._feed.given
        problem: Exception | None = None
        item, said = END, ("end", "")
        try:
            item = self._read()
            if item is not END:
                print_ = Fingerprint(item)
                said = (print_.content if print_.known else "unknown", print_.structure)
        except Exception as error:
            problem = error
            said = ("error", f"{type(error).__name__}: {error}")
        everybody: list[tuple[str, str]] = comm.all_gather_object(said)
        if problem is not None:
            raise problem
        for rank, (kind, text) in enumerate(everybody):
            if kind == "error":
                raise RuntimeError(f"process {rank} could not read the first batch of {given}: {text}")
        kinds = [kind for kind, _ in everybody]
        empty = [rank for rank, kind in enumerate(kinds) if kind == "end"]
        if empty and len(empty) < comm.world:
            raise RuntimeError(
                f"{given} has batches on some processes only, and none on process {empty[0]}: the others would wait for "
                f"it in their first step. Make it the same on all processes."
            )
        self._alike = len(set(kinds)) == 1 and "unknown" not in kinds
        if not empty and not self._feed.told:
            self._tell([structure for _, structure in everybody], "unknown" in kinds)
            self._feed.told = True
        return item

    def _tell(self, structures: list[str], unknown: bool) -> None:
        comm, given = self._feed.comm, self._feed.given
        if unknown:
            checks.doubt("loader", given.place)
        else:
            checks.held("loader", given.place)
        if comm.rank != 0 or given in _said_of:
            return
        _said_of.add(given)
        if self._alike:
            say(f"dealt by whole batches: {given}, 1 of {comm.world} read")
        elif unknown:
            warn(
                f"every process trains on the same data: the batches of {given} hold no tensors, arrays, numbers or "
                f"text that could be compared, so that each process takes all of them"
            )
        else:
            other = next((one for one in structures if one != structures[0]), None)
            shape = "" if other is None else f" (they begin with {structures[0]:.80} and {other:.80})"
            say(f"each process has batches of its own: {given}{shape}")

    def _tell_cost(self, begun: float) -> None:
        if self.done != TIMED or self._feed.comm.rank != 0:
            return
        share = self._reading / max(1e-9, time.perf_counter() - begun)
        if share > DEAR:
            say(
                f"reading the other processes' batches of {self._feed.given} takes {share:.0%} of the time: a DataLoader "
                f"would read only this process's"
            )


def _copied(item: Any) -> Any:
    """The item with copies of its tensors, arrays and containers."""

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, Tensor):
            return leaf.clone()
        return leaf.copy() if isinstance(leaf, numpy.ndarray) else leaf

    copied = map_leaves(copy, item)
    return item.copy() if copied is item and type(item) in (list, dict) else copied


def _same_memory(one: Any, other: Any) -> bool:
    """Whether two items that both exist are in the same memory: the second was filled in in place of the first."""
    if isinstance(other, (list, dict)) and one is other:
        return True
    places = [_addresses(item) for item in (one, other)]
    return not places[0].isdisjoint(places[1])


def _addresses(item: Any) -> set[int]:
    found: set[int] = set()
    for leaf in every_leaf(item):
        if isinstance(leaf, Tensor) and leaf.layout is torch.strided and leaf.numel():
            found.add(leaf.data_ptr())
        elif isinstance(leaf, Tensor):  # a sparse one that is filled again gets other memory
            found.add(id(leaf))
        elif isinstance(leaf, numpy.ndarray) and leaf.size:
            found.add(leaf.__array_interface__["data"][0])
    return found
