"""`prepare_loader` and `skip_first_batches`, which choose the source of a loader's batches and make the new loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from crosstrain.comm.protocol import Comm
from crosstrain.data import unprepared_loops
from crosstrain.data.active_loaders import ActiveLoaders
from crosstrain.data.batch_sources import (
    CountingCollate,
    MapFeed,
    NodeShardFeed,
    StreamFeed,
    StreamShard,
    StreamShardFeed,
)
from crosstrain.data.dataset_state import is_stateful_loader, keep_dataset_state
from crosstrain.data.dispatch import DispatchFeed
from crosstrain.data.draws import Draws
from crosstrain.data.evaluation_loader import EvaluationLoader, WholeLoader, source_of
from crosstrain.data.fingerprint import check_same_loader
from crosstrain.data.loader import Feed, Prepared, PreparedLoader, Progress
from crosstrain.data.loader_copies import attributes_of, class_with, copy_with
from crosstrain.data.options import DataPlan
from crosstrain.data.order_rng import OrderRng
from crosstrain.data.presharded import PreshardedBatchSampler, own_sampler
from crosstrain.data.samplers import (
    SeedableRandomSampler,
    ShardedBatchSampler,
    SkipBatchSampler,
    generators,
    reach,
    seeded,
)
from crosstrain.data.self_sharded import RankWatch, WatchedWorker
from crosstrain.data.sharding import BatchSplit
from crosstrain.data.worker_seeds import SeedByRank, WorkerInits


def prepare_loader(
    loader: DataLoader[Any], comm: Comm, plan: DataPlan, active: ActiveLoaders
) -> DataLoader[Any]:
    """Return a loader of this rank's batches, an instance of the user's own class (collective).

    The user's loader is not changed. A loader that is prepared already is returned as it is, unless it was prepared
    for another run, as in a notebook's process before it starts several. A loader that the script itself has sharded
    for this run, by a DistributedSampler, keeps its order and batches.

    Raises TypeError for anything but a DataLoader, and ValueError where the batch size cannot be split as the plan
    says, where a DistributedSampler is for another number of processes or another process, and where the loader is not
    the same on all processes.
    """
    if isinstance(loader, (EvaluationLoader, WholeLoader)):
        loader = source_of(loader)  # which is to be trained on
    if isinstance(loader, PreparedLoader):
        before = loader._crosstrain.comm
        if before is comm or before.replicas == comm.replicas == 1:
            return loader
        loader = loader._crosstrain.raw
    if not isinstance(loader, DataLoader):
        raise TypeError(f"only a torch DataLoader can be prepared, not {type(loader).__name__}.")
    if comm.replicas > 1:
        unprepared_loops.watch(PreparedLoader)
    attributes = attributes_of(loader)
    seedable = _seed_order(attributes, loader, comm, plan)
    raw = copy_with(type(loader), attributes)
    check_same_loader(raw, comm, one_stream=_reads_one_stream(raw, comm, plan))
    if (sampler := own_sampler(raw)) is not None:
        plan = replace(plan, split_batches=False, even_batches=True, dispatch_batches=False)
    twin = dict(attributes)
    feed = _choose_feed(raw, twin, comm, plan, active.draws)
    stateful = plan.use_stateful_dataloader or is_stateful_loader(loader)
    kept = keep_dataset_state(raw, twin, feed, comm.world) if stateful else None
    name = f"the loader over {type(loader.dataset).__name__}"
    beside = plan.non_blocking or bool(loader.pin_memory)  # memory is pinned for copies that do not block
    place = comm.placer(beside, name) if plan.put_on_device else None
    twin["_crosstrain"] = Prepared(
        comm, plan, active, feed, place, Progress(), raw, seedable, own=sampler, kept=kept
    )
    return copy_with(class_with(PreparedLoader, type(loader)), twin)


def skip_first_batches(dataloader: DataLoader[Any], num_batches: int = 0) -> DataLoader[Any]:
    """Return a copy of the loader that leaves out the first ``num_batches`` batches; the loader is not changed.

    For a prepared loader the number counts this rank's batches from the start of the epoch, and replaces a position
    that `load_state_dict` has set. Skipped batches of a map-style data set are not read.

    Raises ValueError for a negative number.
    """
    if num_batches < 0:
        raise ValueError(f"skip_first_batches: {num_batches} batches cannot be skipped; give 0 or more.")
    if isinstance(dataloader, EvaluationLoader):
        raise ValueError(
            "skip_first_batches: skip the batches first, and give prepare_evaluation what is left."
        )
    attributes = attributes_of(dataloader)
    if isinstance(dataloader, PreparedLoader):
        attributes.pop("_crosstrain_running", None)  # a pass over the other one
        attributes["_crosstrain"] = replace(dataloader._crosstrain, skip=num_batches)
        return copy_with(type(dataloader), attributes)
    if isinstance(dataloader.dataset, IterableDataset):
        attributes["_crosstrain_skip"] = num_batches
        return copy_with(class_with(SkippingLoader, type(dataloader)), attributes)
    name = "sampler" if dataloader.batch_sampler is None else "batch_sampler"
    attributes[name] = SkipBatchSampler(attributes[name], num_batches)
    return copy_with(type(dataloader), attributes)


class SkippingLoader(DataLoader[Any]):
    """An unprepared loader of a stream without its first batches, which are read and dropped."""

    _crosstrain_skip: int

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        return islice(super().__iter__(), self._crosstrain_skip, None)

    def __len__(self) -> int:
        return max(0, super().__len__() - self._crosstrain_skip)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        # pickle cannot find the class, which is made at run time, so it makes the loader from the user's own again.
        attributes = {name: value for name, value in vars(self).items() if name != "_crosstrain_skip"}
        return skip_first_batches, (copy_with(type(self).__bases__[1], attributes), self._crosstrain_skip)


def _seed_order(
    attributes: dict[str, Any], loader: DataLoader[Any], comm: Comm, plan: DataPlan
) -> SeedableRandomSampler | None:
    """The loader's sampler whose order is a function of (seed, epoch), which is put there if the plan asks for it."""
    if isinstance(loader.dataset, IterableDataset):
        return None
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    if plan.use_seedable_sampler:
        seed = torch.initial_seed() if plan.data_seed is None else plan.data_seed
        attributes[name] = seeded(attributes[name], seed)
    batches = attributes[name]
    sampler = batches if name == "sampler" else getattr(batches, "sampler", None)
    if not isinstance(sampler, SeedableRandomSampler):
        return None
    attributes["sampler"] = sampler
    sampler.initial_seed = comm.broadcast_object(sampler.initial_seed)
    return sampler


def _choose_feed(
    raw: DataLoader[Any], twin: dict[str, Any], comm: Comm, plan: DataPlan, draws: Draws
) -> Feed:
    """Choose the source of each rank's batches, and adapt `twin`, the attributes of the prepared loader."""
    stream = isinstance(raw.dataset, IterableDataset)
    shards = comm.world > 1 and stream and _is_sharded(raw, comm, plan)
    dispatch = plan.dispatch_batches or (plan.dispatch_batches is None and stream and not shards)
    how = _batch_split(raw, comm, plan)
    if comm.world > 1 and dispatch:
        rng = order_rng(raw, comm, plan, draws, everywhere=False)
        sampler = raw._index_sampler
        if not stream:
            sampler = sharded_sampler(raw, replace(how, parts=1, part=0, devices=1), rng, comm)
        watch = _watch_rank(raw, twin, plan)
        return DispatchFeed(raw, sampler, how, rng, comm, plan.put_on_device, watch, draws)
    # Where the script shards the loader, each rank's sampler draws its own indices.
    rng = order_rng(raw, comm, plan, draws, everywhere=own_sampler(raw) is None)
    if not stream:
        seed_workers(twin, comm)
        index_sampler = sharded_sampler(raw, how, rng, comm)
        if not how.alone and raw.batch_sampler is not None:
            twin["batch_sampler"] = index_sampler
        return MapFeed(raw, index_sampler)
    if how.alone:
        return StreamFeed(raw, how, rng)
    if shards:
        seed_workers(twin, comm)
        dataset: Any = raw.dataset
        twin["dataset"] = dataset.shard(num_shards=comm.world, index=comm.rank)
        rng = order_rng(raw, comm, plan, Draws())  # each process reads its own shards, with its own numbers
        return NodeShardFeed(raw, how, rng, comm, draws)
    # Every rank reads the same stream, so that its workers must draw the same numbers everywhere: no SeedByRank.
    twin["dataset"] = shard = StreamShard(raw.dataset, how)
    twin["collate_fn"] = CountingCollate(shard, raw.collate_fn)
    return StreamShardFeed(raw, how, rng, _watch_rank(raw, twin, plan))


def _is_sharded(raw: DataLoader[Any], comm: Comm, plan: DataPlan) -> bool:
    return plan.dispatch_batches is not True and _can_shard(raw.dataset, comm.world)


def _reads_one_stream(raw: DataLoader[Any], comm: Comm, plan: DataPlan) -> bool:
    """Whether the rows of all processes come from one stream, which must not be one process's part of it."""
    stream = isinstance(raw.dataset, IterableDataset) and plan.dispatch_batches is not True
    return stream and not _is_sharded(raw, comm, plan)


def _batch_split(raw: DataLoader[Any], comm: Comm, plan: DataPlan) -> BatchSplit:
    batches = raw._index_sampler
    stream = isinstance(raw.dataset, IterableDataset)
    size = raw.batch_size if stream or raw.batch_size is not None else getattr(batches, "batch_size", None)
    drop_last = raw.drop_last or (not stream and bool(getattr(batches, "drop_last", False)))
    # A batch that the user's data set makes itself is one batch for all devices of a process.
    devices = 1 if raw.batch_size is None and raw.batch_sampler is None else comm.replicas // comm.world
    return BatchSplit(comm.world, comm.rank, size, plan.split_batches, plan.even_batches, drop_last, devices)


def order_rng(
    raw: DataLoader[Any], comm: Comm, plan: DataPlan, draws: Draws, everywhere: bool = True
) -> OrderRng:
    """The random state in which the loader's order is drawn; see `OrderRng` for ``draws`` and ``everywhere``."""
    if isinstance(raw.dataset, IterableDataset):
        found = generators(raw, raw.dataset)
        # torch draws the workers' base seed: a stream that every rank reads must be the same on all.
        return OrderRng(comm, found, "torch", plan.rng_types, everywhere=everywhere, draws=draws)
    batches = raw._index_sampler
    found = generators(raw, batches)
    return OrderRng(comm, found, reach(batches), plan.rng_types, everywhere=everywhere, draws=draws)


def sharded_sampler(
    raw: DataLoader[Any],
    how: BatchSplit,
    rng: OrderRng,
    comm: Comm,
    kind: type[ShardedBatchSampler] = ShardedBatchSampler,
) -> ShardedBatchSampler:
    """The index sampler that divides the loader's batches as ``how`` says, of this ``kind``.

    Where the script itself shards the loader, it keeps the script's own batches.
    """
    batches = raw._index_sampler
    single = raw.batch_sampler is None and not isinstance(batches, BatchSampler)
    unknown = reach(batches) == "anything"
    early = unknown or raw.num_workers > 0
    if (sampler := own_sampler(raw)) is not None:
        return PreshardedBatchSampler(
            batches, how, rng, comm, single=single, check=False, early=early, sampler=sampler
        )
    return kind(batches, how, rng, comm, single=single, check=how.parts > 1 and unknown, early=early)


def seed_workers(twin: dict[str, Any], comm: Comm) -> None:
    """Let the loader's workers draw other numbers on each rank."""
    if comm.world > 1 and twin["num_workers"]:
        twin["worker_init_fn"] = SeedByRank(comm.rank, twin["worker_init_fn"])


def _watch_rank(raw: DataLoader[Any], twin: dict[str, Any], plan: DataPlan) -> RankWatch | None:
    """What watches the first read of a stream; None where the user has chosen that process 0 reads for all."""
    if plan.dispatch_batches is True:
        return None
    name = type(raw.dataset).__name__
    if twin["num_workers"]:
        twin["worker_init_fn"] = WorkerInits(twin["worker_init_fn"], WatchedWorker(name))
        return None
    return RankWatch(name)


def _can_shard(dataset: Any, world: int) -> bool:
    """Whether the stream has a shard for every process and a method `shard`, like Hugging Face's IterableDataset."""
    count = getattr(dataset, "num_shards", None) or getattr(dataset, "n_shards", None)
    return callable(getattr(dataset, "shard", None)) and isinstance(count, int) and count >= world
