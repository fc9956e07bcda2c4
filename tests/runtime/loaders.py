"""Loaders of every kind, and what tells whether two of them do the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.data.active_loaders import ActiveLoaders
from crosstrain.data.options import DataPlan
from crosstrain.data.prepare import prepare_loader
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Sampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)


def prepare(loader: DataLoader[Any], active: ActiveLoaders | None = None, **plan: Any) -> Any:
    return prepare_loader(loader, TorchComm.start(cpu=True), DataPlan(**plan), active or ActiveLoaders())


class Noisy(Dataset[Tensor]):
    """Augments in the process: every item draws a random number from three streams."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int) -> Tensor:
        drawn = float(torch.rand(())) + random.random() + float(np.random.rand())
        return torch.tensor([float(index), drawn])


class Stream(IterableDataset[int]):
    def __init__(self, n: int, noisy: bool = False) -> None:
        self.n = n
        self.noisy = noisy

    def __iter__(self) -> Iterator[Any]:
        for i in range(self.n):
            yield i + float(torch.rand(())) if self.noisy else i


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.n


class EagerBatches(Sampler[list[int]]):
    """Draws its order in __iter__, before torch draws the workers' seed."""

    def __iter__(self) -> Iterator[list[int]]:
        order = torch.randperm(10).tolist()
        return iter([order[:4], order[4:6], order[6:]])

    def __len__(self) -> int:
        return 3


LOADERS = {
    "sequential": lambda: DataLoader(Noisy(10), batch_size=3),
    "shuffle": lambda: DataLoader(Noisy(10), batch_size=3, shuffle=True),
    "drop last": lambda: DataLoader(Noisy(10), batch_size=3, shuffle=True, drop_last=True),
    "generator": lambda: DataLoader(
        Noisy(10), batch_size=3, shuffle=True, generator=torch.Generator().manual_seed(3)
    ),
    "replacement": lambda: DataLoader(Noisy(10), batch_size=3, sampler=RandomSampler(range(10), True, 70)),
    "weighted": lambda: DataLoader(Noisy(10), batch_size=3, sampler=WeightedRandomSampler([1.0] * 10, 8)),
    "subset": lambda: DataLoader(Noisy(10), batch_size=3, sampler=SubsetRandomSampler([1, 4, 7, 2, 9, 0, 5])),
    "eager batch sampler": lambda: DataLoader(Noisy(10), batch_sampler=EagerBatches()),
    "no batching": lambda: DataLoader(Noisy(10), batch_size=None, shuffle=True),
    "batches of indices": lambda: DataLoader(
        TensorDataset(torch.rand(10)),
        batch_size=None,
        sampler=BatchSampler(RandomSampler(range(10)), 3, False),
    ),
    "workers": lambda: DataLoader(Noisy(10), batch_size=3, shuffle=True, num_workers=2),
    "stream": lambda: DataLoader(Stream(10, noisy=True), batch_size=3),
    "sized stream": lambda: DataLoader(SizedStream(10, noisy=True), batch_size=3),
    "stream without batching": lambda: DataLoader(Stream(4), batch_size=None),
}


def seed_all() -> None:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)


def record(loader: Any, passes: int = 2) -> list[Any]:
    """Every batch of some passes, and a number drawn after each batch from each stream, as dropout would."""
    seen: list[Any] = []
    for _ in range(passes):
        walk = iter(loader)
        seen.append(torch.rand(()))  # between iter() and the first batch, as in `data = iter(loader)`
        for batch in walk:
            seen += [batch, torch.rand(()), random.random(), np.random.rand()]
    return seen


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)
