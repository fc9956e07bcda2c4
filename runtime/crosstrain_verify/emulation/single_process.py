"""Keeps each rank of a run to one process: loaders have no workers.

Workers would draw their random numbers in other processes, where nothing can be traced or compared.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from torch.utils.data import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)

# DataLoader(dataset, batch_size, shuffle, sampler, batch_sampler, num_workers, ...), without the data set.
SAMPLER_POSITION, WORKERS_POSITION = 2, 4
NUMBER = "_verify_number"  # of a loader, by construction
# They prepare a loader by making another.
LIBRARIES = ("/accelerate/", "/lightning_fabric/", "/lightning/fabric/")


class Count:
    """How many loaders were made. A process that a notebook starts continues its count, and the notebook continues that."""

    def __init__(self) -> None:
        self.made = 0
        # Data set and number of each loader that no library has copied.
        self.uncopied: list[tuple[Any, int]] = []

    def copied(self, dataset: Any) -> int | None:
        """The number of the loader that another library is about to copy in order to prepare it; None if it is no copy."""
        frame: FrameType | None = sys._getframe(2)
        if frame is None or not any(part in frame.f_code.co_filename for part in LIBRARIES):
            return None
        for place, (known, number) in enumerate(self.uncopied):
            if known is dataset:
                del self.uncopied[place]
                return number
        return None

    def next(self) -> int:
        """The number of another loader, from 0."""
        self.made += 1
        return self.made - 1


loaders = Count()


def install(leave_out: Mapping[int, int]) -> None:
    """Number all loaders and take their workers away.

    leave_out: by loader, how many samples to leave out at the end of its data set.
    """
    _replace_loader(leave_out)
    _replace_order()


def _replace_order() -> None:
    """Make a shuffling DistributedSampler of one process draw its order as a loader without a sampler does.

    Its own order comes from its seed and the epoch. The migrated script has no such sampler, and so another order.
    """
    sampler: Any = DistributedSampler
    real: Callable[..., Iterator[Any]] = sampler.__iter__

    @functools.wraps(real)
    def iterate(self: Any) -> Iterator[Any]:
        return iter(RandomSampler(self.dataset)) if self.num_replicas == 1 and self.shuffle else real(self)

    sampler.__iter__ = iterate


def _replace_loader(leave_out: Mapping[int, int]) -> None:
    real_init: Callable[..., None] = DataLoader.__init__

    @functools.wraps(real_init)
    def init(self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        copied = loaders.copied(dataset)
        number = loaders.next() if copied is None else copied
        positional = list(args)
        if copied is None and number in leave_out:
            dataset = _leave_out(leave_out[number], dataset, positional, kwargs)
        if len(positional) > WORKERS_POSITION:
            positional[WORKERS_POSITION] = 0
        if kwargs.get("num_workers"):
            kwargs["num_workers"] = 0
        for name in ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout"):
            kwargs.pop(name, None)
        real_init(self, dataset, *positional, **kwargs)
        setattr(self, NUMBER, number)
        if copied is None:
            loaders.uncopied.append((dataset, number))

    DataLoader.__init__ = init  # type: ignore[method-assign]


def _leave_out(rows: int, dataset: Any, positional: list[Any], kwargs: dict[str, Any]) -> Any:
    """The data set to load from. If a sampler chooses from it, the sampler is shortened instead, if it can be."""
    for name, position in (("sampler", SAMPLER_POSITION), ("batch_sampler", SAMPLER_POSITION + 1)):
        place: Any = kwargs if name in kwargs else positional
        key: Any = name if name in kwargs else position
        sampler = place[key] if name in kwargs or position < len(positional) else None
        if sampler is None:
            continue
        if type(sampler) is SubsetRandomSampler:
            kept = list(sampler.indices)[: max(1, len(sampler.indices) - rows)]
            place[key] = SubsetRandomSampler(kept, generator=sampler.generator)
        return dataset
    return shortened(dataset, rows)


class Shortened(Subset[Any]):
    """The first samples of a data set, with the attributes of the whole data set."""

    def __getattr__(self, name: str) -> Any:
        if "dataset" not in self.__dict__:  # the object is being copied and has no attributes yet
            raise AttributeError(name)
        return getattr(self.dataset, name)


def shortened(dataset: Any, rows: int) -> Any:
    """The data set without its last ``rows`` samples, but never without its first; unchanged if it has no length."""
    if isinstance(dataset, IterableDataset) or not hasattr(dataset, "__len__"):
        return dataset
    count = max(1, len(dataset) - rows)
    if type(dataset) is TensorDataset:
        return TensorDataset(*(tensor[:count] for tensor in dataset.tensors))
    if type(dataset) is Subset:
        return Subset(dataset.dataset, list(dataset.indices)[:count])
    return Shortened(dataset, range(count))
