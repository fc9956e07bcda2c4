"""An iterable data set that gives each process its own part is noticed, where one stream is read for all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from crosstrain import Accelerator
from torch import distributed
from torch.distributed import get_rank
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tests.runtime.loaders import prepare
from tests.support.ranks import run_ranks, this_rank


class ByGroup(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from islice(range(8), get_rank(), None, distributed.get_world_size())


class ByVariable(IterableDataset[int]):
    """Decides in iter(), not with its first row."""

    def __iter__(self) -> Iterator[int]:
        rank = int(os.environ.get("RANK", 0))
        return iter(range(rank, 8, 2))


class ByItem(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        for row in range(8):
            if row % 2 == int(os.environ["RANK"]):
                yield row


class ByAccelerator(IterableDataset[int]):
    def __init__(self) -> None:
        self.accelerator = Accelerator(cpu=True)

    def __iter__(self) -> Iterator[int]:
        yield from range(self.accelerator.process_index, 8, self.accelerator.num_processes)


class ByAttribute(IterableDataset[int]):
    def __init__(self) -> None:
        self.rank = get_rank()

    def __iter__(self) -> Iterator[int]:
        yield from range(self.rank, 8, 2)


class ByFiles(IterableDataset[int]):
    def __init__(self) -> None:
        self.files = [f"train-{number}.txt" for number in range(8)][get_rank() :: 2]

    def __iter__(self) -> Iterator[int]:
        yield from (int(name[6]) for name in self.files)


SHARDED = [ByGroup, ByVariable, ByItem, ByAccelerator, ByAttribute, ByFiles]


class ByWorker(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(first, 8, step)


class Described(IterableDataset[int]):
    """Holds numbers and lists, asks for the number of processes, and for whether it was launched."""

    def __init__(self) -> None:
        self.files, self.epoch, self.start, self.seed = ["a", "b"], 0, 1, get_rank()

    def __iter__(self) -> Iterator[int]:
        assert "RANK" in os.environ and os.environ.get("WORLD_SIZE") == "2"
        assert distributed.get_world_size() == 2
        yield from range(8)


def _read(kind: Callable[[], Any], workers: int, plan: dict[str, Any]) -> Any:
    comm = this_rank()
    options: dict[str, Any] = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    try:
        loader = prepare(DataLoader(kind(), batch_size=2, **options), **plan)
        rows = [row for batch in loader for row in batch.tolist()]
    except (ValueError, RuntimeError) as error:
        return str(error)
    return sorted(row for rank in comm.all_gather_object(rows) for row in rank)


@pytest.mark.parametrize("kind", SHARDED)
@pytest.mark.parametrize("plan", [{}, {"dispatch_batches": False}], ids=["dispatched", "read by all"])
def test_a_data_set_that_shards_itself_is_an_error_on_all(kind: Any, plan: Any) -> None:
    for message in run_ranks(_read, 2, kind, 0, plan):
        what = "its `files` is 4 values from 'train-0.txt'" if kind is ByFiles else "the process's rank"
        assert f"the data set {kind.__name__} " in message and what in message
        assert "dispatch_batches=True" in message and "let it yield all rows" in message
        if kind in SHARDED[:4]:  # the line that asks
            assert f"{Path(__file__).name}:" in message


@pytest.mark.parametrize("kind", [ByGroup, ByVariable])
def test_it_is_noticed_in_workers_too(kind: Any) -> None:
    for message in run_ranks(_read, 2, kind, 1, {}):
        assert f"the data set {kind.__name__} asks for the process's rank" in message


@pytest.mark.parametrize(("kind", "workers"), [(ByWorker, 0), (ByWorker, 2), (Described, 0), (Described, 1)])
def test_a_data_set_that_does_not_is_read_whole(kind: Any, workers: int) -> None:
    for rows in run_ranks(_read, 2, kind, workers, {}, forks=workers > 0):
        assert rows == list(range(8))


def test_the_users_word_counts() -> None:
    assert run_ranks(_read, 2, ByGroup, 0, {"dispatch_batches": True}) == [[0, 2, 4, 6]] * 2


def test_one_process_is_left_alone() -> None:
    assert run_ranks(_read, 1, ByItem, 0, {}) == [[0, 2, 4, 6]]
