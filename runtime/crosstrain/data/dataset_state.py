"""The state of a data set and of the iterator over it, from which a resumed pass continues without reading again.

This does for prepared loaders what torchdata's StatefulDataLoader does for plain ones. With every batch comes the
`state_dict()` of the data set and of its iterator after that batch, from the process that read it (a worker, or this
one). A resumed pass gives each worker the state of its last batch, by `load_state_dict`, and continues with the worker
whose turn it is.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain, islice, repeat
from typing import Any, NamedTuple, TypeAlias

from torch.utils.data import DataLoader, IterableDataset, IterDataPipe, get_worker_info

from crosstrain.data.batch_sources import StreamShard, WrappedStream
from crosstrain.data.dispatch import DispatchFeed
from crosstrain.data.loader import Feed, Read
from crosstrain.data.worker_seeds import WorkerInits

State: TypeAlias = dict[str, Any]
_PLACEHOLDER = object()  # a row of a batch that only takes a worker's turn
_READ_AHEAD = 3  # steps; no pass reads further ahead of its loop


class Snapshot(NamedTuple):
    """The state of a worker's data set after a batch; None where neither it nor its iterator has one."""

    worker: int
    state: State | None


class StatefulStream(WrappedStream):
    """An iterable data set that can continue from a saved state.

    rows: the number of rows that the loader asks for at once.
    again: how many of a pass's first rows a resumed stream reads again, because they complete the last step of the
        pass. The first worker reads them, or every worker where `everywhere` is true. They come before all others, and
        the loop does not get them.
    unasked: whether the loader does not ask for them either, because its first batch is another worker's.
    """

    def __init__(self, dataset: Any, rows: int, again: int, everywhere: bool = False) -> None:
        super().__init__(dataset)
        self.rows = rows
        self.again = again
        self.everywhere = everywhere
        self.unasked = False
        self.resume: dict[int, State] = {}  # states by worker
        self.turn = -1  # the worker that gave the last batch
        self._iterator: Any = None
        self._begin: Any = None
        self._ended = False

    def __iter__(self) -> Iterator[Any]:
        worker, turn, self.turn = _worker(), self.turn, -1
        state = self.resume.pop(worker, None)
        leads: Any = repeat(_PLACEHOLDER, self.rows) if worker <= turn else ()
        self.unasked = state is not None and self.everywhere and worker > turn
        if state is None:
            self._begin = _state_of(self.dataset)
        else:
            self._begin = state["begin"]
            if self.everywhere or worker == 0:
                leads = self._read_again() or leads
            _load(self.dataset, state["dataset"])
        self._ended = state is not None and state["ended"]
        if self._ended:  # a data set that has begun its next pass is not to give it in this one
            self._iterator = None
            return iter(leads)
        self._iterator = iter(self.dataset)
        if state is not None:
            _load(self._iterator, state["iterator"])
        return chain(leads, self._iterator, self._end())

    def _end(self) -> Iterator[Any]:
        self._ended = True
        yield from ()

    def _read_again(self) -> list[Any]:
        """Read the first rows of the pass once more."""
        if not self.again:
            return []
        _load(self.dataset, self._begin)
        return list(islice(iter(self.dataset), self.again))

    def state(self) -> State | None:
        iterator = None if self._iterator is self.dataset else _state_of(self._iterator)
        dataset = _state_of(self.dataset)
        if dataset is None and iterator is None:
            return None
        return {"begin": self._begin, "dataset": dataset, "iterator": iterator, "ended": self._ended}

    def __len__(self) -> int:
        return len(self.dataset)


class StatefulRows:
    """A map-style data set that has a state: the counterpart of `StatefulStream`."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.resume: dict[int, State] = {}
        self.turn = -1

    def state(self) -> State | None:
        return {"dataset": _state_of(self.dataset)}

    def restore(self, worker: int = 0) -> None:
        """Load this worker's state. The worker whose turn it was has become the first one of the new pass."""
        info = get_worker_info()
        workers = 1 if info is None else info.num_workers
        state = self.resume.pop((_worker() + self.turn + 1) % workers, None)
        if state is not None:
            _load(self.dataset, state["dataset"])


class SnapshotCollate:
    """Collates rows and returns the state after them, so that both come from the worker together."""

    def __init__(self, source: StatefulStream | StatefulRows, collate: Callable[[Any], Any]) -> None:
        self.source = source
        self.collate = collate

    def __call__(self, rows: Any) -> tuple[Any, Snapshot]:
        if rows is _PLACEHOLDER or (type(rows) is list and rows and rows[0] is _PLACEHOLDER):
            return None, Snapshot(_worker(), None)
        batch = self.collate(rows)
        return batch, Snapshot(_worker(), self.source.state())


class Snapshots:
    """The states that came with the batches of one pass, kept until the loop gets those batches.

    group: how many batches make a step. batches: how many of them the loop has got. states: each worker's state after
    the last batch that the loop got from it. turn: the worker that the last of all batches came from.
    """

    def __init__(self, group: int, batches: int, states: dict[int, State], turn: int) -> None:
        self._group = group
        self._batches = batches
        self._states = states
        self._turn = turn
        self._waiting: deque[Snapshot] = deque()

    def strip(self, items: Iterator[tuple[Any, Snapshot]]) -> Iterator[Any]:
        for batch, snapshot in items:
            self._waiting.append(snapshot)
            if len(self._waiting) > _READ_AHEAD * self._group:
                self._settle()
            yield batch

    def after(self, steps: int) -> tuple[dict[int, State], int] | None:
        """The states and the turn after so many steps of the loop; None where there are no states."""
        while self._waiting and self._batches < steps * self._group:
            self._settle()
        return (self._states, self._turn) if self._states else None

    def _settle(self) -> None:
        worker, state = self._waiting.popleft()
        self._batches += 1
        self._turn = worker
        if state is not None:
            self._states[worker] = state


class DatasetState:
    """Keeps the state of one prepared loader's data set.

    source: the data set, as the loader's workers have it. workers: how many there are. group: how many batches make a
    step.
    """

    def __init__(self, source: StatefulStream | StatefulRows, workers: int, group: int) -> None:
        self._source = source
        self._workers = max(1, workers)
        self._in_workers = workers > 0
        self._group = group

    def reading(self, read: Read, skip: int, loaded: State | None) -> tuple[Read, Snapshots]:
        """`read` without the states that come with its batches, and the object that keeps these.

        loaded: the state with which the pass continues after `skip` steps. The skipped batches are then not read; the
        first batch of the pass is given in place of each.
        """
        stream = isinstance(self._source, StatefulStream)
        if loaded is None:
            snapshots = Snapshots(self._group, 0 if stream else skip, {}, -1)
            return lambda: snapshots.strip(iter(read())), snapshots
        states = {int(worker): state for worker, state in loaded["workers"].items()}
        snapshots = Snapshots(self._group, skip * self._group, dict(states), loaded["turn"])

        def restored() -> Iterator[Any]:
            items = self._begin(read, states, loaded["turn"])
            if not stream:
                return snapshots.strip(items)
            return chain.from_iterable(_behind(items, loaded["turn"] + 1, skip * self._group, snapshots))

        return restored, snapshots

    def _begin(self, read: Read, states: dict[int, State], turn: int) -> Iterator[Any]:
        source = self._source
        source.resume, source.turn = dict(states), turn
        try:
            if isinstance(source, StatefulRows) and not self._in_workers:
                source.restore()
            return iter(read())
        finally:  # the workers have it now; the next pass starts from the beginning
            source.resume, source.turn = {}, -1

    def position(self, snapshots: Snapshots | None, steps: int) -> State | None:
        """What it takes to resume the pass after so many steps, with the state of this process's data set."""
        found = None if snapshots is None or not steps else snapshots.after(steps)
        own = None if found is not None and not self._in_workers else _state_of(self._source.dataset)
        if found is None and own is None:
            return None
        states, turn = found or ({}, -1)
        workers = {str(worker): state for worker, state in states.items()}
        return {"own": own, "workers": workers, "turn": turn, "num_workers": self._workers}

    def load(self, state: State | None) -> State | None:
        """Load the state of this process's data set.

        Returns the state for the next pass; None where it cannot be used.
        """
        if state is None:
            return None
        _load(self._source.dataset, state["own"])
        return state if state["workers"] and state["num_workers"] == self._workers else None


def _behind(items: Iterator[Any], leads: int, skipped: int, snapshots: Snapshots) -> Iterator[Iterator[Any]]:
    """The batches after the first ones, which only take the workers' turns."""
    first = list(islice(items, leads))
    yield repeat(first[0][0] if first else None, skipped)
    yield snapshots.strip(items)


def keep_dataset_state(
    loader: DataLoader[Any], twin: dict[str, Any], feed: Feed, world: int
) -> DatasetState | None:
    """Make the batches of a prepared loader, whose attributes are `twin`, come with the state of its data set.

    Returns None, and changes nothing, for a data set without a state and for a loader class whose own `__iter__` would
    see the states.
    """
    dataset = twin["dataset"]
    if type(loader).__iter__ not in _plain_iterations(type(loader)) or isinstance(dataset, IterDataPipe):
        return None
    dispatched = isinstance(feed, DispatchFeed)
    workers = twin["num_workers"]
    if not isinstance(dataset, IterableDataset):
        if dispatched or not _has_state(dataset):
            return None
        source = StatefulRows(dataset)
        twin["collate_fn"] = SnapshotCollate(source, twin["collate_fn"])
        if workers:
            twin["worker_init_fn"] = WorkerInits(twin["worker_init_fn"], source.restore)
        return DatasetState(source, workers, 1)
    size = loader.batch_size or 1
    if isinstance(dataset, StreamShard):
        rows = dataset.how.full or dataset.how.group
        dataset.dataset = stream = StatefulStream(dataset.dataset, rows, rows, everywhere=True)
    else:
        twin["dataset"] = stream = StatefulStream(dataset, size, size if world > 1 else 0)
    twin["collate_fn"] = SnapshotCollate(stream, twin["collate_fn"])
    return DatasetState(stream, workers, feed.how.group if dispatched else 1)


def is_stateful_loader(loader: DataLoader[Any]) -> bool:
    """Whether this is torchdata's StatefulDataLoader; torchdata is not imported for that."""
    return any(kind.__module__.startswith("torchdata.stateful_dataloader") for kind in type(loader).__mro__)


def _plain_iterations(kind: type) -> list[Any]:
    named = [DataLoader, *(base for base in kind.__mro__ if base.__module__.startswith("torchdata."))]
    return [vars(base).get("__iter__") for base in named]


def _has_state(holder: Any) -> bool:
    return all(callable(getattr(holder, name, None)) for name in ("state_dict", "load_state_dict"))


def _state_of(holder: Any) -> Any:
    """A copy of the object's present state; None for an object without one."""
    return copy.deepcopy(holder.state_dict()) if _has_state(holder) else None


def _load(holder: Any, state: Any) -> None:
    if state is not None and _has_state(holder):
        holder.load_state_dict(copy.deepcopy(state))


def _worker() -> int:
    info = get_worker_info()
    return 0 if info is None else info.id
