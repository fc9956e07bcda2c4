"""Iterables of batches that are no DataLoader, dealt to the processes by whole batches.

Every process reads the one sequence, and takes every P-th batch of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, cast

from torch.utils.data import DataLoader, IterableDataset

from crosstrain.comm.protocol import Comm
from crosstrain.data.active_loaders import ActiveLoaders
from crosstrain.data.dealt_feed import DealtFeed, Given
from crosstrain.data.loader import Prepared, PreparedLoader, Progress
from crosstrain.data.options import DataPlan
from crosstrain.data.order_rng import OrderRng
from crosstrain.data.sharding import BatchSplit


def deal(batches: Any, comm: Comm, plan: DataPlan, active: ActiveLoaders, given: Given) -> DealtLoader:
    """Return a loader of this process's batches of an iterable; its other attributes and methods are the iterable's."""
    raw: DataLoader[Any] = DataLoader(_Nothing(), batch_size=None)
    attributes = dict(vars(raw))
    for name in ("dataset", "batch_size", "sampler", "batch_sampler", "num_workers", "drop_last"):
        if hasattr(batches, name):
            attributes[name] = getattr(batches, name)
    if not hasattr(batches, "dataset"):
        attributes["dataset"] = batches
    even = plan.even_batches
    how = BatchSplit(parts=comm.world, part=comm.rank, size=None, even=even)
    place = comm.placer(plan.non_blocking, str(given)) if plan.put_on_device else None
    feed = DealtFeed(batches, how, OrderRng(comm, [], "nothing"), comm, active, given)
    attributes["_crosstrain"] = Prepared(comm, plan, active, feed, place, Progress(), batches)
    loader = object.__new__(_class_for(type(batches)))
    vars(loader).update(attributes)
    return loader


class _Nothing(IterableDataset[Any]):
    """Stands for the data set while torch makes a loader's attributes."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


class DealtLoader(PreparedLoader):
    """A loader of this process's batches of an iterable; everything else is the iterable's own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_crosstrain":
            raise AttributeError(name)
        return getattr(self._crosstrain.raw, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = vars(self)
        if name.startswith("_") or (name in own and not hasattr(own["_crosstrain"].raw, name)):
            own[name] = value
            return
        setattr(own["_crosstrain"].raw, name, value)
        if name in own:
            own[name] = value

    def __bool__(self) -> bool:
        return bool(self._crosstrain.raw)

    def follows(self, other: Any) -> bool:
        """Whether ``other`` was dealt for the same lines of the script before, and is used up or given up."""
        if not isinstance(other, DealtLoader):
            return False
        mine, theirs = cast("DealtFeed", self._crosstrain.feed), cast("DealtFeed", other._crosstrain.feed)
        if mine.lines != theirs.lines:
            return False
        return other._crosstrain.progress.begun and not other._crosstrain.progress.runs

    def take_over(self, other: DealtLoader) -> None:
        """Count the epochs on, where ``other`` has ended."""
        self._crosstrain.progress.epoch = other._crosstrain.progress.epoch

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, also in the iterable where it has `set_epoch`."""
        super().set_epoch(epoch)
        raw: Any = self._crosstrain.raw
        if callable(forward := getattr(raw, "set_epoch", None)) and self.dataset is not raw:
            forward(epoch)


class DealtIterator(DealtLoader):
    """A dealt iterable that is an iterator too, such as a generator: a new pass goes on where the last one ended."""

    _crosstrain_running: Iterator[Any] | None = None

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        self._leave_pass()
        vars(self)["_crosstrain_running"] = super().__iter__()
        return self

    def __next__(self) -> Any:
        if self._crosstrain_running is None:
            vars(self)["_crosstrain_running"] = super().__iter__()
        running: Any = self._crosstrain_running
        return next(running)

    def _leave_pass(self) -> None:
        running: Any = self._crosstrain_running
        if running is not None:
            running.close()


_FORWARDED = ("__getitem__", "__contains__", "__call__", "__enter__", "__exit__")
_classes: dict[type, type[DealtLoader]] = {}


def _class_for(kind: type) -> type[DealtLoader]:
    """The class of a dealt iterable of this type, with the special methods that the type has."""
    if kind not in _classes:
        base = DealtIterator if hasattr(kind, "__next__") else DealtLoader
        names: dict[str, Any] = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        names |= {name: _forward(name) for name in _FORWARDED if hasattr(kind, name)}
        _classes[kind] = type(kind.__name__, (base,), names)
    return _classes[kind]


def _forward(name: str) -> Callable[..., Any]:
    def method(self: DealtLoader, *args: Any) -> Any:
        return getattr(self._crosstrain.raw, name)(*args)

    return method
