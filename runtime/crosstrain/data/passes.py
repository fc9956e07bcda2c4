"""One pass over a prepared loader, and the source that its batches come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from crosstrain.comm.random_streams import State
from crosstrain.data import unprepared_loops
from crosstrain.data.order_rng import OrderRng
from crosstrain.data.pass_rows import PassRows
from crosstrain.data.sharding import BatchSplit, Counts

if TYPE_CHECKING:
    from crosstrain.data.loader import PreparedLoader

Read = Callable[[], Iterator[Any]]
"""A function that begins a pass over the user's own loader."""


class Peekable:
    """An iterator that can be asked whether it is exhausted; only then does it read one item ahead."""

    def __init__(self, source: Iterator[Any]) -> None:
        self._source = source
        self._ahead: list[Any] = []

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._ahead.pop() if self._ahead else next(self._source)

    def exhausted(self) -> bool:
        if not self._ahead:
            self._ahead.extend(islice(self._source, 1))
        return not self._ahead

    def take_ahead(self) -> list[Any]:
        """The item that was read ahead, which is not given out any more; an empty list if there is none."""
        ahead, self._ahead = self._ahead, []
        return ahead


class Pass:
    """One iteration over a prepared loader.

    batches: what is left to read. done: how many batches of the pass were given out, skipped ones included.
    length: how many batches the whole pass has on this rank; None where only reading tells.
    counts: the rows of the batch in hand by rank; None where they are unknown.
    start: the random state in which the pass began.
    first: whether no pass over the loader began before it.
    snapshots: the states of the data set, see `dataset_state.Snapshots`.
    draws_own: whether each process draws its own random numbers meanwhile, as long as the script does not shard it.
    entered, thread, loops: when its first batch was asked for, and by which `for` statements.
    """

    first = True
    entered = 0
    thread = 0
    loops: tuple[unprepared_loops.Loop, ...] = ()
    snapshots: Any = None

    def __init__(self, loader: PreparedLoader, batches: Iterator[Any], start: State, done: int) -> None:
        self.loader = loader
        self.length = loader._crosstrain.feed.length()
        self.batches = batches if self.length is not None else Peekable(batches)
        self.done = done
        self._start = start
        self.taken = PassRows(type(loader.dataset).__name__, loader._crosstrain.comm.rank)
        self._counts: Counts | None = None
        self.place = loader._crosstrain.place
        self.draws_own = loader._crosstrain.own is None

    @property
    def start(self) -> State:
        return self._start

    def first_asked(self) -> None:
        """Called when the first batch is asked for, because a stream may draw its order then."""
        if "order" not in self._start:
            self._start = self.loader._crosstrain.feed.rng.order(self._start)

    @property
    def counts(self) -> Counts | None:
        return self._counts

    @counts.setter
    def counts(self, counts: Counts | None) -> None:
        self._counts = counts
        if counts is not None:
            self.taken.add(counts)

    def known_counts(self) -> Counts | None:
        """The rows of the batch in hand by rank; None where they are unknown."""
        return self.counts

    def left(self) -> None:
        """Called when the loop is over or was broken off."""

    @property
    def receive(self) -> Callable[[Any], Any] | None:
        """A function that makes the user's batch of what was read; None where both are the same."""
        return self.place

    @property
    def at_end(self) -> bool:
        if isinstance(self.batches, Peekable):
            return self.batches.exhausted()
        return self.done == self.length

    @property
    def last_for_all(self) -> bool:
        """Whether this batch is known, without reading ahead, to be the last one on every rank."""
        how = self.loader._crosstrain.feed.how
        uneven = how.even is False and not how.drop_last
        return not (uneven or isinstance(self.batches, Peekable)) and self.at_end

    def weights(self) -> tuple[float, ...]:
        prepared = self.loader._crosstrain
        if self.counts is None or prepared.plan.even_batches != "weighted":
            return (1.0,) * prepared.comm.world
        return self.counts.weights()


class Feed(Protocol):
    """The source of a prepared loader's batches."""

    rng: OrderRng
    index_sampler: Any

    @property
    def how(self) -> BatchSplit: ...

    def begin(self, loader: PreparedLoader, read: Read, skip: int, resume: State | None) -> Pass:
        """Begin a pass without its first ``skip`` batches, in the random state ``resume`` if it is given."""
        ...

    def length(self) -> int | None:
        """The number of batches of a whole pass on this rank; None where it is not certain."""
        ...

    def __len__(self) -> int:
        """The number of batches of a whole pass on this rank by the data set's own length; TypeError without one."""
        ...
