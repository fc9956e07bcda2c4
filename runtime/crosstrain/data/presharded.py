"""Loaders that the script itself has sharded with a DistributedSampler; prepared, they keep their own order."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset

from crosstrain.comm.protocol import Comm
from crosstrain.data.samplers import ShardedBatchSampler, known_length
from crosstrain.data.sharding import Batch, Counts


class Share(NamedTuple):
    """A sampler's share of the data set: the number of shares, this one's index, and the sampler's type."""

    replicas: int
    rank: int
    kind: str


def own_sampler(loader: DataLoader[Any]) -> Any:
    """The sampler by which the script itself shards this loader; None if it leaves that to `prepare`.

    This is a DistributedSampler, or any object with its attributes `num_replicas` and `rank`: the sampler, the batch
    sampler, or one inside it.
    """
    if isinstance(loader.dataset, IterableDataset):
        return None
    holder: Any = loader._index_sampler
    while holder is not None:
        replicas = getattr(holder, "num_replicas", None)
        if isinstance(replicas, int) and isinstance(getattr(holder, "rank", None), int):
            return holder if replicas > 1 else None
        holder = getattr(holder, "batch_sampler", None) or getattr(holder, "sampler", None)
    return None


def share_of(loader: DataLoader[Any]) -> Share | None:
    """This process's share of a loader that the script shards; None for any other loader."""
    sampler = own_sampler(loader)
    return None if sampler is None else Share(sampler.num_replicas, sampler.rank, type(sampler).__name__)


def misfit(shares: list[Share | None], comm: Comm, data: str) -> str | None:
    """An error message about the shares of the processes' loaders over ``data``; None if they fit this run."""
    for rank, share in enumerate(shares):
        if share is None or (share[:2] == (comm.world, rank) and comm.replicas == comm.world):
            continue
        problem = (
            f"the loader over {data} has a {share.kind} for process {share.rank} of {share.replicas}, and "
            f"this is process {rank} of {comm.world}"
        )
        if comm.replicas != comm.world:
            return (
                f"{problem}, which feeds {comm.replicas // comm.world} devices of {comm.replicas}. Remove the "
                "sampler (shuffle=True keeps the order random): `prepare` shards the loader."
            )
        return (
            f"{problem}: samples would be missed, or trained on twice. Remove the sampler (shuffle=True keeps the "
            "order random), and `prepare` shards the loader; or give it num_replicas="
            "accelerator.num_processes and rank=accelerator.process_index."
        )
    return None


class PreshardedBatchSampler(ShardedBatchSampler):
    """The index sampler of a loader that the script has sharded; each step is one of its own batches.

    sampler: the sampler that shards. Its indices are every `num_replicas`-th of an order, which begins again at its end
    until all ranks have as many; the repeated ones are not real.
    """

    def __init__(self, *args: Any, sampler: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sampler = sampler

    def __len__(self) -> int:
        return len(self.batches)

    def steps(self, walk: Iterator[Batch]) -> Iterator[tuple[Batch, Counts | None]]:
        counts = self._counts()
        for own in walk:
            yield own, next(counts, None)

    def _counts(self) -> Iterator[Counts]:
        """The counts of each step; none where only the other ranks know theirs."""
        held, size = known_length(self.sampler), 1 if self.single else self.how.size
        if held is None or size is None or not self._tells_batches():
            return
        rows, replicas = range(held), range(self.sampler.num_replicas)
        real = self._real(held)
        if real is None:
            return
        for start in count(0, size):
            step = rows[start : start + size]
            if not step:
                return
            true = tuple(min(max(real[rank] - start, 0), len(step)) for rank in replicas)
            yield Counts((len(step),) * len(replicas), true)

    def _tells_batches(self) -> bool:
        """Whether the batches are the sampler's indices in order, in groups of the batch size."""
        batches = self.batches
        return batches is self.sampler or (type(batches) is BatchSampler and batches.sampler is self.sampler)

    def _real(self, held: int) -> list[int] | None:
        """How many of each rank's first indices are not repetitions; None where the sampler has an order of its own."""
        replicas, n = self.sampler.num_replicas, known_length(getattr(self.sampler, "dataset", None))
        if n is not None and held * replicas <= n:
            return [held] * replicas
        if n is None or type(self.sampler).__iter__ is not DistributedSampler.__iter__:
            return None
        return [len(range(rank, n, replicas)) for rank in range(replicas)]
