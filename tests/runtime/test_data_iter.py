"""Decision 26: what an iter() draws is what plain PyTorch's draws, whatever becomes of the iterator.

Each program runs on plain loaders in one process, and on prepared ones in one and two; the rows of all processes,
in the order of the data set, and the number drawn at the end must be the same.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Sampler, WeightedRandomSampler

from tests.runtime.loaders import prepare
from tests.support.ranks import run_ranks

Make = Callable[[], DataLoader[Any]]


def _twice(a: Any, b: Any) -> Iterator[Any]:
    """tqdm.auto in a notebook, and under asyncio: it makes one iterator and throws it away."""
    for _ in range(2):
        iter(a)
        yield from a


def _zipped(a: Any, b: Any) -> Iterator[Any]:
    for one, other in zip(a, b, strict=False):
        yield one
        yield other
    yield from a


def _broken_off(a: Any, b: Any) -> Iterator[Any]:
    for _ in range(2):
        for batch in a:
            yield batch
            break
    for _ in a:
        break
    yield from b


def _nested(a: Any, b: Any) -> Iterator[Any]:
    for number, batch in enumerate(a):
        yield batch
        torch.rand(1)  # dropout
        if number == 1:
            yield from b


def _peeked(a: Any, b: Any) -> Iterator[Any]:
    next(iter(a))
    walk = iter(a)
    torch.rand(3)  # weights are initialised
    yield from walk


PROGRAMS = [_twice, _zipped, _broken_off, _nested, _peeked]


class Eager(Sampler[list[int]]):
    """Draws its order in __iter__, another one with its first batch, and is of no known kind."""

    batch_size, drop_last = 4, False

    def __iter__(self) -> Iterator[list[int]]:
        return self._batches(torch.randperm(12).tolist())

    def _batches(self, order: list[int]) -> Iterator[list[int]]:
        rows = [order[i] for i in torch.randperm(12).tolist()]
        yield from (rows[i : i + 4] for i in (0, 4, 8))

    def __len__(self) -> int:
        return 3


class Shuffled(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from torch.randperm(12).tolist()


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(4)


def _fork() -> dict[str, Any]:
    return {"num_workers": 1, "multiprocessing_context": "fork"}


LOADERS: dict[str, Make] = {
    "shuffle": lambda: DataLoader(range(12), batch_size=4, shuffle=True),
    "generator": lambda: DataLoader(range(12), batch_size=4, shuffle=True, generator=_generator()),
    "weighted": lambda: DataLoader(range(12), batch_size=4, sampler=WeightedRandomSampler([1.0] * 12, 12)),
    "eager": lambda: DataLoader(range(12), batch_sampler=Eager()),
    "batch sampler": lambda: DataLoader(range(12), batch_sampler=BatchSampler(_shuffled(), 4, False)),
    "workers": lambda: DataLoader(range(12), batch_size=4, shuffle=True, **_fork()),
    "persistent": lambda: DataLoader(range(12), 4, shuffle=True, persistent_workers=True, **_fork()),
    "stream": lambda: DataLoader(Shuffled(), batch_size=4),
}


def _shuffled() -> Any:
    return torch.utils.data.RandomSampler(range(12))


def _ran(program: Callable[[Any, Any], Iterator[Any]], name: str, prepared: bool) -> tuple[list[Any], float]:
    torch.manual_seed(8)
    loaders = [LOADERS[name]() for _ in range(2)]
    if prepared:
        loaders = [prepare(loader, split_batches=True) for loader in loaders]
    return [batch.tolist() for batch in program(*loaders)], torch.rand(()).item()


def _all(name: str, prepared: bool) -> list[tuple[list[Any], float]]:
    return [_ran(program, name, prepared) for program in PROGRAMS]


@pytest.mark.parametrize("name", LOADERS)
def test_every_iter_draws_what_plain_pytorch_would(name: str) -> None:
    (plain,) = run_ranks(_all, 1, name, False)
    assert run_ranks(_all, 1, name, True) == [plain]
    first, second = run_ranks(_all, 2, name, True, forks=True)
    for number, (rows, drawn) in enumerate(plain):
        (one, stream), (other, streams_other) = first[number], second[number]
        assert [a + b for a, b in zip(one, other, strict=True)] == rows, PROGRAMS[number]
        assert stream == drawn, PROGRAMS[number]
        if name != "stream":  # only process 0 reads it
            assert streams_other == drawn, PROGRAMS[number]
