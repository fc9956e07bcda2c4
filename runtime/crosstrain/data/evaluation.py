"""`prepare_evaluation`: the batches of an evaluation are divided among the processes, each whole and computed once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch.utils.data import DataLoader, IterableDataset

from crosstrain.comm.placement import Placer
from crosstrain.comm.protocol import Comm
from crosstrain.data.active_loaders import ActiveLoaders
from crosstrain.data.evaluation_loader import (
    BlockBatchSampler,
    EvaluationFeed,
    EvaluationLoader,
    WholeLoader,
    inside_of,
    source_of,
)
from crosstrain.data.fingerprint import check_same_loader
from crosstrain.data.loader import Prepared, Progress
from crosstrain.data.loader_copies import attributes_of, class_with, copy_with
from crosstrain.data.merge import merge
from crosstrain.data.options import DataPlan
from crosstrain.data.prepare import order_rng, seed_workers, sharded_sampler
from crosstrain.data.presharded import own_sampler
from crosstrain.data.remembered import Remembered
from crosstrain.data.samplers import known_length
from crosstrain.data.sharding import BatchSplit
from crosstrain.utils import checks
from crosstrain.utils.messages import say

_NO_LOADERS = (list, tuple, dict, set, frozenset, str, bytes, range, type(None))
DIVIDED, DIVISIBLE, WHOLE, NO_LOADER = "divided", "divisible", "whole", "no loader"


class _Given(NamedTuple):
    """What one process gives to `prepare_evaluation`.

    state: one of the four above. kind: its type's name. known: whether it is prepared already. made: how many evaluation
    loaders this process has made.
    """

    state: str
    kind: str
    known: bool
    made: int


class EvaluationLoaders:
    """The evaluation loaders of one Accelerator.

    plan: returns the present options for loaders. sharded: returns whether models are sharded.
    """

    def __init__(
        self, comm: Comm, active: ActiveLoaders, plan: Callable[[], DataPlan], sharded: Callable[[], bool]
    ) -> None:
        self.comm = comm
        self._active = active
        self._plan = plan
        self._sharded = sharded
        self._number = 0
        self.forget()

    def forget(self) -> None:
        """Forget the loaders that were prepared."""
        self._divided, self._whole = Remembered(), Remembered()

    def prepare(self, given: Any) -> Any:
        """See `Accelerator.prepare_evaluation`."""
        comm, inside = self.comm, inside_of(given)
        if type(given) in _NO_LOADERS:
            return given
        loader = source_of(inside if isinstance(inside, EvaluationLoader) else given)
        if comm.world == 1:
            return self._made_whole(given, loader)
        state = DIVIDED if isinstance(inside, EvaluationLoader) else self._state(loader)
        known = state == DIVIDED or self._divided.known(loader, self._plan()) is not None
        mine = _Given(state, type(given).__name__, known, self._number)
        everybody = [_Given(*theirs) for theirs in comm.all_gather_object(tuple(mine))]
        self._number = max(theirs.made for theirs in everybody)
        states = {theirs.state for theirs in everybody}
        if states <= {DIVIDED, DIVISIBLE}:
            if not all(theirs.known for theirs in everybody):
                self._make_divided(loader)
            return given if state == DIVIDED else self._divided.known(loader, self._plan())
        if NO_LOADER in states and len(states) > 1:
            self._say_whole(everybody)
        return self._made_whole(given, loader)

    def _state(self, loader: Any) -> str:
        if not isinstance(loader, DataLoader):
            return NO_LOADER
        # As for a data set that gives the next row, whatever index it is asked for.
        if self._plan().dispatch_batches:
            return WHOLE
        return DIVISIBLE if why_whole(loader, self.comm, self._sharded()) is None else WHOLE

    def _make_divided(self, loader: DataLoader[Any]) -> None:
        check_same_loader(loader, self.comm, one_stream=False)
        self._number += 1
        plan = self._plan()
        self._divided.put(loader, plan, _divided(loader, self.comm, plan, self._active, self._number))

    def _made_whole(self, given: Any, loader: Any) -> Any:
        if isinstance(given, WholeLoader) or not isinstance(loader, DataLoader):
            return given
        plan = self._plan()
        return self._whole.get(loader, plan, lambda: _whole(loader, self.comm, plan))[0]

    def _say_whole(self, everybody: list[_Given]) -> None:
        if self.comm.rank or not checks.first_use("evaluation"):
            return
        first = next(rank for rank, theirs in enumerate(everybody) if theirs.state == NO_LOADER)
        other = next(theirs.kind for theirs in everybody if theirs.state != NO_LOADER)
        say(
            f"every process evaluates all batches ({checks.here()}): process {first} has a {everybody[first].kind} "
            f"where others have a {other}; put it around what prepare_evaluation returns instead"
        )


def why_whole(loader: DataLoader[Any], comm: Comm, sharded: bool) -> str | None:
    """Why the loader's batches cannot be divided among the processes; None if they can.

    ``sharded``: whether models are sharded, so that their forward communicates.
    """
    if comm.world == 1:
        return "there is one process"
    if sharded:
        return "a sharded model communicates in its forward"
    if not comm.averages:
        return "one program computes for all processes"
    if isinstance(loader.dataset, IterableDataset):
        return "an iterable data set has no list of batches"
    if type(loader).__iter__ is not DataLoader.__iter__:
        return f"{type(loader).__name__} has an __iter__ of its own"
    if known_length(loader._index_sampler) is None:
        return "the number of its batches is unknown"
    return None


def _whole(loader: DataLoader[Any], comm: Comm, plan: DataPlan) -> DataLoader[Any]:
    """A copy of the loader that gives all of its batches on every process, on the device."""
    attributes = attributes_of(loader)
    place = _placer(loader, comm, plan)
    attributes["_crosstrain_whole"] = (copy_with(type(loader), attributes), comm, place)
    return copy_with(class_with(WholeLoader, type(loader)), attributes)


def _divided(
    loader: DataLoader[Any], comm: Comm, plan: DataPlan, active: ActiveLoaders, number: int
) -> DataLoader[Any]:
    """A copy of the loader that gives this rank's block of its batches, on the device.

    A loader that the script itself shards, by a DistributedSampler, keeps its own batches.
    """
    attributes = attributes_of(loader)
    raw = copy_with(type(loader), attributes)
    twin = dict(attributes)
    size = getattr(raw._index_sampler, "batch_size", None)
    # Uneven: ranks may have different numbers of batches, so nothing may be compared in their last one.
    how = BatchSplit(comm.world, comm.rank, size, even=False)
    own = own_sampler(raw)
    rng = order_rng(raw, comm, plan, active.draws, everywhere=own is None)
    feed = EvaluationFeed(raw, sharded_sampler(raw, how, rng, comm, BlockBatchSampler))
    seed_workers(twin, comm)
    twin["_crosstrain_number"] = number
    place = _placer(raw, comm, plan)
    twin["_crosstrain"] = Prepared(comm, plan, active, feed, place, Progress(), raw, own=own)
    return copy_with(class_with(EvaluationLoader, type(loader)), twin)


def _placer(loader: DataLoader[Any], comm: Comm, plan: DataPlan) -> Any:
    if not plan.put_on_device:
        return None
    beside = plan.non_blocking or bool(loader.pin_memory)
    if comm.world > 1 and not comm.averages:  # comm's own placer makes each process's batch a part of one
        return Placer(comm.device, beside)
    return comm.placer(beside, f"the loader over {type(loader.dataset).__name__}")


class EvaluationMembers:
    """The members of an Accelerator that divide evaluations among the processes."""

    _evaluations: EvaluationLoaders

    def prepare_evaluation(self, loader: Any) -> Any:
        """Return a copy of the loader of which each process iterates its own batches, on the device (collective).

        The original's batches are dealt whole, as they are, in contiguous blocks whose lengths differ by one at most; of
        fewer batches than processes the first is the main process's, and some processes have none. `len`, ``dataset``,
        ``batch_size`` and all else are the original's. The copy has three more attributes: ``own_length``, this process's
        number of batches; ``start``, the original's index of its first one, so that ``enumerate(loader, loader.start)``
        counts as the original does; and ``whole``. What the loop adds up is made one value by `merge`, after it.

        A loader that cannot be dealt stays whole: every process iterates all of it, ``whole`` is True, ``start`` is 0,
        and `merge` returns what it is given. That is so with one process or a sharded model, for an iterable data set, an
        unknown length, or a loader with an ``__iter__`` of its own, and where another process gives no DataLoader,
        such as a progress bar, which is said. Anything but a DataLoader is returned as it is.

        Raises ValueError where the loader is not the same on all processes.
        """
        return self._evaluations.prepare(loader)

    def merge(self, loader: Any, *values: Any, last: bool = False, join: bool = False) -> Any:
        """Add up over the processes what each has accumulated in a loop over ``loader`` (one collective).

        Call it after the loop, on every process, for accumulators that started at zero or empty. Returns one value, or
        a tuple of several, the same on every process.

        * Numbers, tensors and arrays of one shape are added: integers exactly, floats in float64, in the order of
          the processes. Type, dtype and device stay. Lists, tuples, deques and strings are joined in the original's
          order, and sets united. Dictionaries and named tuples are merged by entry.
        * An object, such as a meter, is merged by its attributes, in place: those its class's methods add to. One that
          has ``sum`` and ``count`` is merged by these; an attribute that is computed from others is computed anew.
        * ``join=True`` concatenates tensors and arrays along dimension 0 instead of adding them.
        * ``last=True`` returns the values of the process that had the last batch: what a loop leaves behind.

        ``loader`` is what `prepare_evaluation` returned, or a progress bar over it. For a loader that stays whole, and
        one that was never prepared, the values are returned as they are. For a loader of `prepare` they are merged too;
        rows that complete its last batch count twice.

        Raises, on every process, TypeError for a bool and for what cannot be added, and where some processes lack a
        value or an entry; RuntimeError where a process has left the loop early or merges something else.
        """
        merged = merge(loader, values, self._evaluations.comm, last=last, join=join)
        return merged[0] if len(merged) == 1 else merged
