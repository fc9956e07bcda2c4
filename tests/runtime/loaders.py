"""Loaders of every kind, and what tells whether two of them do the same."""

import pickle
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from crosstrain.data.active_loaders import ActiveLoaders
from crosstrain.data.options import DataPlan
from crosstrain.data.prepare import prepare_loader, skip_first_batches
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

from tests.runtime.data_reference import Case
from tests.support.ranks import this_rank

ACTIVE = ActiveLoaders()


def prepare(loader: DataLoader[Any], active: ActiveLoaders = ACTIVE, **plan: Any) -> Any:
    """The loader as a process of a run gets it; ``plan``: options of `DataPlan`."""
    return prepare_loader(loader, this_rank(), DataPlan(**plan), active)


def walked(raw: DataLoader[Any], case: Case, skip: int, **plan: Any) -> tuple[list[Any], int | None]:
    """What this rank gets of a pass, and what `len` says where the data set has one."""
    rank = this_rank().rank
    loader = prepare(raw, split_batches=case.split, even_batches=case.even, **plan)
    if skip:
        loader = skip_first_batches(loader, skip)
    seen = [(b.tolist(), loader.real_rows(rank), loader.rows(rank), loader.end_of_dataloader) for b in loader]
    assert ACTIVE.current is None
    return seen, len(loader) if hasattr(raw.dataset, "__len__") else None


def check(found: tuple[list[Any], int | None], share: list[tuple[list[int], int]], where: Any) -> None:
    """Whether that is this share of the reference."""
    batches, length = found
    assert [(rows, real) for rows, real, _, _ in batches] == share, where
    assert [held for _, _, held, _ in batches] == [len(rows) for rows, _ in share], where
    assert [end for *_, end in batches] == [False] * (len(share) - 1) + [True] * bool(share), where
    assert length in (None, len(share)), where


def interrupted(
    fresh: Callable[[], Any], rest: Callable[[Any], Iterator[Any]], save_at: int
) -> tuple[list[Any], list[Any]]:
    """What a run gives, and one that is broken off after `save_at` batches and loaded into a new loader."""
    whole = list(rest(fresh()))
    loader = fresh()
    walk = rest(loader)
    first = [next(walk) for _ in range(save_at)]
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    streams = torch.get_rng_state(), random.getstate(), np.random.get_state()
    walk.close()
    again = fresh()
    torch.manual_seed(77 + this_rank().rank)  # a new process
    again.load_state_dict(state)
    torch.set_rng_state(streams[0])
    random.setstate(streams[1])
    np.random.set_state(streams[2])
    return whole, first + list(rest(again))


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


def plain(value: Any) -> Any:
    """The value with its types, in a form that can be compared and sent."""
    if isinstance(value, Tensor):
        return ("tensor", str(value.dtype), (value.to_dense() if value.is_sparse else value).tolist())
    if isinstance(value, (np.ndarray, np.generic)):
        return ("numpy", str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return (type(value).__name__, [(key, plain(entry)) for key, entry in value.items()])
    if isinstance(value, (list, tuple, deque)):
        return (type(value).__name__, [plain(entry) for entry in value])
    if isinstance(value, set):
        return sorted(value)
    if hasattr(value, "__dict__"):
        return (type(value).__name__, sorted((name, plain(held)) for name, held in vars(value).items()))
    return value
