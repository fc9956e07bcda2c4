"""Decision 22: a loader that the script has sharded by a DistributedSampler keeps its order, and its counts are exact."""

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from torch import distributed
from torch.distributed import get_rank
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, IterableDataset, get_worker_info

from tests.runtime.loaders import interrupted, prepare
from tests.support.ranks import errors_of, on_ranks, run_ranks, this_rank


def _sampler(n: int, kind: Any = DistributedSampler, **kw: Any) -> Any:
    comm = this_rank()
    return kind(range(n), num_replicas=comm.world, rank=comm.rank, **kw)


def _same(n: int, size: int, drop: bool, shuffle: bool, within: str, **plan: Any) -> Any:
    """This rank's batches as the plain loader gives them and as the prepared one does, and the real rows of them."""

    def make() -> DataLoader[Any]:
        sampler = _sampler(n, shuffle=shuffle, drop_last=drop)
        if within == "batch sampler":
            return DataLoader(range(n), batch_sampler=BatchSampler(sampler, size, False))  # type: ignore[arg-type]
        if within == "no batching":
            return DataLoader(range(n), batch_size=None, sampler=sampler)  # type: ignore[arg-type]
        return DataLoader(range(n), batch_size=size, sampler=sampler)  # type: ignore[arg-type]

    plain, loader = make(), prepare(make(), **plan)
    wanted, found, gathered = [], [], []
    for epoch in range(2):
        (plain if within != "batch sampler" else plain.batch_sampler).sampler.set_epoch(epoch)
        wanted.append([torch.as_tensor(batch).tolist() for batch in plain])
        loader.set_epoch(epoch)
        mine, metric, ends = [], [], []
        for batch in loader:
            rows = torch.as_tensor(batch)
            mine.append(rows.tolist())
            metric += rows.reshape(-1)[: loader.real_rows(this_rank().rank)].tolist()
            ends.append(loader.end_of_dataloader)
        assert ends == [False] * (len(mine) - 1) + [True] * bool(mine) and len(loader) == len(mine)
        found.append(mine)
        gathered.append(metric)
    return wanted, found, gathered


GRID = [
    (n, size, drop, shuffle, within)
    for n in (1, 2, 5, 8, 9, 12)
    for size in (1, 3, 4)
    for drop in (False, True)
    for shuffle in (False, True)
    for within in ("sampler", "batch sampler", "no batching")
    if n > 2 or not drop
]


def _grid() -> list[Any]:
    plans: list[dict[str, Any]] = [
        {},
        {"split_batches": True},
        {"even_batches": False},
        {"even_batches": "weighted"},
        {"dispatch_batches": True},
    ]
    return [_same(*case, **plans[number % len(plans)]) for number, case in enumerate(GRID)]


@pytest.mark.parametrize("world", [2, 3])
def test_the_scripts_own_order_is_kept_and_counted_exactly(world: int) -> None:
    by_rank = run_ranks(_grid, world)
    for number, (n, _, drop, _, _) in enumerate(GRID):
        for wanted, found, _ in (one[number] for one in by_rank):
            assert found == wanted, GRID[number]
        for epoch in range(2):
            rows = sorted(row for one in by_rank for row in one[number][2][epoch])
            if drop:
                assert len(set(rows)) == len(rows) == n - n % world, GRID[number]
            else:
                assert rows == list(range(n)), GRID[number]


def _workers(number: int) -> dict[str, Any]:
    return {"num_workers": number, "multiprocessing_context": "fork"} if number else {}


def _resume(workers: int, how: str, save_at: int) -> Any:
    def fresh() -> Any:
        sampler = _sampler(11)
        return prepare(DataLoader(range(11), batch_size=2, sampler=sampler, **_workers(workers)))  # type: ignore[arg-type]

    def rest(loader: Any) -> Iterator[Any]:
        for number in range(loader.epoch, 3):
            (loader if how == "loader" else loader.sampler).set_epoch(number)
            for batch in loader:
                yield batch.tolist(), loader.real_rows(0), loader.real_rows(1), loader.end_of_dataloader

    return interrupted(fresh, rest, save_at)


@pytest.mark.parametrize("how", ["loader", "sampler"])
@pytest.mark.parametrize(("save_at", "workers"), [(1, 0), (2, 0), (3, 0), (5, 0), (6, 0), (5, 1)])
def test_resume_is_exact(how: str, save_at: int, workers: int) -> None:
    for whole, resumed in run_ranks(_resume, 2, workers, how, save_at, forks=workers > 0):
        assert resumed == whole


def _misfit(replicas: int | None, rank: int | None) -> None:
    comm = this_rank()
    mine = comm.rank if rank is None else rank
    sampler = DistributedSampler(range(8), replicas or comm.world, mine)  # type: ignore[arg-type]
    prepare(DataLoader(range(8), batch_size=2, sampler=sampler))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("replicas", "rank", "named"),
    [
        (None, 0, "a DistributedSampler for process 0 of 2, and this is process 1 of 2"),
        (4, None, "a DistributedSampler for process 0 of 4, and this is process 0 of 2"),
        (None, None, "no error"),
    ],
)
def test_a_sampler_for_another_process_is_refused(replicas: int | None, rank: int | None, named: str) -> None:
    messages = errors_of(_misfit, 2, replicas, rank)
    assert all(named in message for message in messages) and len(set(messages)) == 1


@on_ranks(1, 2)
def test_a_sampler_for_one_process_leaves_sharding_to_prepare() -> None:
    comm = this_rank()
    sampler = DistributedSampler(range(8), num_replicas=1, rank=0, shuffle=False)  # type: ignore[arg-type]
    loader = prepare(DataLoader(range(8), batch_size=2, sampler=sampler))  # type: ignore[arg-type]
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]][comm.rank :: comm.world]


@on_ranks(2)
def test_a_schedule_as_long_as_a_sharded_loader_ends_with_it() -> None:
    accelerator = Accelerator(cpu=True)
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    data = torch.arange(8.0).unsqueeze(1)
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data))  # type: ignore[arg-type, var-annotated]
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.5, total_iters=len(loader))
    net, optimizer, loader, schedule = accelerator.prepare(net, optimizer, loader, schedule)
    rates = []
    for x in loader:
        accelerator.backward(net(x).mean())
        optimizer.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])
    assert rates == [0.75, 0.5]


# -- An iterable data set that gives each process its own part is noticed, where one stream is read for all ---


def _kind(name: str, read: Callable[[Any], Any], **attributes: Callable[[], Any]) -> Any:
    """A class of data sets that read so; attributes are made with the object."""

    def init(self: Any) -> None:
        vars(self).update({name: make() for name, make in attributes.items()})

    body = {"__init__": init, "__iter__": lambda self: iter(read(self)), "__module__": __name__}
    return type(name, (IterableDataset,), body)


def _items(data: Any) -> Iterator[int]:
    for row in range(8):
        if row % 2 == int(os.environ["RANK"]):
            yield row


ByGroup = _kind("ByGroup", lambda _: islice(range(8), get_rank(), None, distributed.get_world_size()))
ByVariable = _kind("ByVariable", lambda _: range(int(os.environ.get("RANK", 0)), 8, 2))
ByItem = _kind("ByItem", _items)
ByAccelerator = _kind(
    "ByAccelerator",
    lambda data: range(data.of.process_index, 8, data.of.num_processes),
    of=lambda: Accelerator(cpu=True),
)
ByAttribute = _kind("ByAttribute", lambda data: range(data.rank, 8, 2), rank=get_rank)
ByFiles = _kind(
    "ByFiles",
    lambda data: (int(name[6]) for name in data.files),
    files=lambda: [f"train-{number}.txt" for number in range(8)][get_rank() :: 2],
)
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
    try:
        loader = prepare(DataLoader(kind(), batch_size=2, **_workers(workers)), **plan)
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
