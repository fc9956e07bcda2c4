"""Iterable data sets over real processes: dispatched by process 0, or sharded."""

import itertools
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
from crosstrain.comm import torch_backend
from torch.utils.data import DataLoader, IterableDataset

from tests.runtime.data_reference import Case, expected, grid
from tests.runtime.loaders import SizedStream, Stream, check, interrupted, plain, prepare, walked
from tests.support.ranks import errors_of, on_ranks, run_ranks, this_rank

SIZES = (0, 1, 2, 3, 5, 7, 8)


def _run_grid(world: int, dispatch: bool | None, map_style: bool) -> list[Any]:
    seen = []
    for number, case, skip in grid(SIZES, world):
        data: Any = range(case.n) if map_style else SizedStream(case.n) if number % 2 else Stream(case.n)
        raw = DataLoader(data, case.batch, drop_last=case.drop_last)
        seen.append(walked(raw, case, skip, dispatch_batches=dispatch))
    return seen


@pytest.mark.parametrize(
    ("world", "dispatch", "map_style"),
    [(2, None, False), (3, None, False), (2, True, True), (2, False, False), (3, False, False)],
)
def test_streams_dispatched_and_read_by_all_ranks(world: int, dispatch: bool | None, map_style: bool) -> None:
    """Peer bugs 5 and 6: with less than one global batch accelerate crashes under drop_last, and where every rank
    reads it pads and never drops, and has wrong lengths."""
    by_rank = run_ranks(_run_grid, world, world, dispatch, map_style)
    for number, case, skip in grid(SIZES, world):
        wanted = expected(list(range(case.n)), case)
        if dispatch is not False:
            wanted = _completed_to_a_multiple(wanted, case)
        for rank in range(world):
            check(by_rank[rank][number], wanted[rank][skip:], (case, number, rank))


def _completed_to_a_multiple(wanted: list[Any], case: Case) -> list[Any]:
    """A dispatched tail of n rows is completed to the next multiple of the ranks, from the first batch."""
    full = case.batch if case.split else case.batch * case.world
    tail = case.n % full
    if case.even is not True or case.drop_last or not tail:
        return wanted
    width = -(-tail // case.world)
    first = list(range(min(case.batch, case.n)))
    more = itertools.islice(itertools.cycle(first), width * case.world - tail)
    rows = [*range(case.n - tail, case.n), *more]
    for rank, batches in enumerate(wanted):
        batches[-1] = (rows[rank * width : (rank + 1) * width], min(max(tail - rank * width, 0), width))
    return wanted


Pair = namedtuple("Pair", "x y")


class Ragged(IterableDataset[Any]):
    """Ready-made batches of all kinds: of other shapes, with strings, with values that have no rows."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __iter__(self) -> Iterator[Any]:
        for i in range(5):
            rows = 2 if i < 4 else 1
            x = torch.full((rows, 3), float(i))
            if self.kind == "plain":
                yield {"x": x, "y": torch.arange(rows) + 10 * i, "mask": x > 1, "pair": Pair(x.half(), None)}
            elif self.kind == "lengths":
                yield {"x": torch.full((rows, i + 1), i)}
            elif self.kind == "strings":
                yield [x, [f"{i}.{j}" for j in range(rows)]]
            elif self.kind == "scalar":
                yield {"x": x, "scale": torch.tensor(float(i)), "name": f"batch {i}"}
            elif self.kind == "sparse":
                yield x.to_sparse()
            elif self.kind == "object":
                yield {"x": x, "ids": {i}}


@pytest.mark.parametrize("kind", ["plain", "lengths", "strings", "scalar", "sparse", "object"])
@on_ranks(2)
def test_ready_made_batches_of_any_kind_arrive_whole(kind: str) -> None:
    """Ragged batches, strings and other objects: rank r gets batch r of each step; the tail repeats the first."""
    rank, sources = this_rank().rank, list(Ragged(kind))
    mine = [sources[rank], sources[2 + rank], sources[4] if rank == 0 else sources[0]]
    loader = prepare(DataLoader(Ragged(kind), batch_size=None))
    counts = []
    for batch, source in zip(loader, mine, strict=True):
        assert plain(batch) == plain(source)
        counts.append((loader.real_rows(0), loader.real_rows(1), loader.end_of_dataloader))
    assert counts == [(2, 2, False), (2, 2, False), (1, 0, True)]


class Rows(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for i in range(7):
            yield {"x": torch.full((2,), float(i)), "name": f"row {i}", "n": i}


@pytest.mark.parametrize(
    ("split", "rows", "weights"),
    [(True, [[0, 1, 4, 5], [2, 3, 6]], [4 / 3, 2 / 3]), (False, [[0, 1, 2, 3], [4, 5, 6]], [8 / 7, 6 / 7])],
)
@on_ranks(2)
def test_tensors_and_strings_are_cut_by_row(split: bool, rows: list[list[int]], weights: list[float]) -> None:
    rank, mine = this_rank().rank, []
    loader = prepare(DataLoader(Rows(), batch_size=4), split_batches=split, even_batches="weighted")
    for batch in loader:
        mine += (numbers := batch["n"].tolist())
        assert batch["name"] == [f"row {n}" for n in numbers]
        assert batch["x"][:, 0].tolist() == [float(n) for n in numbers]
        last = loader.weight
    assert (mine, last) == (rows[rank], weights[rank])


class Failing(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(4)
        raise OSError("disk on fire")


@on_ranks(2)
def test_a_read_error_on_process_0_ends_all_processes() -> None:
    said = "process 0 could not read the next batch: OSError: " if this_rank().rank else ""
    with pytest.raises(RuntimeError if this_rank().rank else OSError, match=f"^{said}disk on fire$"):
        list(prepare(DataLoader(Failing(), batch_size=1)))


def _out_of_step() -> None:
    comm = this_rank()
    loader = prepare(DataLoader(Stream(9), batch_size=1))
    walk = iter(loader)
    next(walk)
    if comm.rank:
        walk = iter(loader)  # leaves the loop and begins it again, while process 0 goes on
    next(walk)


def test_ranks_that_are_out_of_step_are_told() -> None:
    _, second = errors_of(_out_of_step, 2)
    assert "asks for batch 0 of pass 1" in second and "sent batch 1 of pass 0" in second


class Shards(IterableDataset[int]):
    """In the manner of Hugging Face's IterableDataset."""

    def __init__(self, shards: list[list[int]]) -> None:
        self.shards = shards

    @property
    def num_shards(self) -> int:
        return len(self.shards)

    def shard(self, num_shards: int, index: int) -> "Shards":
        return Shards(self.shards[index::num_shards])

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self.shards)


# The rows of each rank's batches, how many of rank's 0 and 1 are real, whether it is the last, and its weight.
WHOLE = [([0, 1], 2, False, 1.0), ([2, 3], 2, False, 1.0), ([4], 1, True, 1.0)]
FILLED = [([10, 11], 2, False, 1.0), ([12, 10], 1, False, 1.0), ([10], 0, True, 1.0)]
WEIGHED = [([0, 1], 2, False, 1.0), ([2, 3], 2, False, 4 / 3), ([4], 1, True, 2.0)]
LIGHT = [([10, 11], 2, False, 1.0), ([12], 1, False, 2 / 3), ([10], 0, True, 0.0)]
UNEVEN = [([0, 1], None, False, 1.0), ([2, 3], None, False, 1.0), ([4], None, True, 1.0)]
SHARDS: list[Any] = [(True, False, WHOLE, FILLED), ("weighted", False, WEIGHED, LIGHT)]
SHARDS += [(False, False, UNEVEN, [([10, 11], None, False, 1.0), ([12], None, True, 1.0)])]
SHARDS += [(True, True, [([0, 1], 2, True, 1.0)], [([10, 11], 2, True, 1.0)])]


@pytest.mark.parametrize(("even", "drop", "first", "second"), SHARDS)
@on_ranks(2)
def test_shards_are_read_once_and_end_together(even: Any, drop: bool, first: Any, second: Any) -> None:
    """Peers let ranks with fewer rows end early, and the others hang in their next collective."""
    rank = this_rank().rank
    data = Shards([[0, 1, 2], [10], [3, 4], [11, 12]])
    loader = prepare(DataLoader(data, batch_size=2, drop_last=drop), even_batches=even)
    found = [(b.tolist(), loader.real_rows(rank), loader.end_of_dataloader, loader.weight) for b in loader]
    assert found == (first, second)[rank]


def _resume(kind: str, save_at: int) -> tuple[list[Any], list[Any]]:
    def fresh() -> Any:
        torch.manual_seed(this_rank().rank)
        if kind == "map":
            return prepare(DataLoader(range(9), batch_size=2, shuffle=True), dispatch_batches=True)  # type: ignore[arg-type]
        data = Shards([[*range(5)], [*range(10, 14)]]) if kind == "shards" else Stream(9)
        return prepare(DataLoader(data, batch_size=2), dispatch_batches=False if kind == "all" else None)

    def rest(loader: Any) -> Iterator[Any]:
        while loader.epoch < 2:
            for batch in loader:
                yield batch.tolist(), loader.real_rows(1), loader.end_of_dataloader, torch.rand(()).item()

    return interrupted(fresh, rest, save_at)


@pytest.mark.parametrize("save_at", [1, 3, 4])
@pytest.mark.parametrize("kind", ["map", "dispatched", "all", "shards"])
def test_resume_of_streams_is_exact(kind: str, save_at: int) -> None:
    for whole, resumed in run_ranks(_resume, 2, kind, save_at):
        assert resumed == whole


def _taken(walk: Iterator[Any]) -> list[Any]:
    """Three batches; every rank but 0 comes late for each. No patience runs out but that of the group."""
    torch_backend.BRIEFLY = timedelta(milliseconds=1)
    taken = []
    for batch in walk:
        if this_rank().rank:
            time.sleep(0.3)
        taken.append(batch.tolist())
        if len(taken) == 3:
            break
    return taken


def _leave_the_loop() -> list[Any]:
    taken = _taken(prepare(DataLoader(Stream(9), batch_size=1)))
    return [*taken, sum(this_rank().all_gather_object(1))]  # the group is as good as before


def _leave_the_group() -> list[Any]:
    global walk  # it lives on, as a script's own names do until the process ends
    walk = iter(prepare(DataLoader(Stream(9), batch_size=1)))
    taken = _taken(next(walk) for _ in range(3))
    this_rank().close()
    return [*taken, 2]


@pytest.mark.parametrize("leave", [_leave_the_loop, _leave_the_group])
def test_process_0_leaves_when_the_others_have_taken_its_last_batch(leave: Callable[[], list[Any]]) -> None:
    assert run_ranks(leave, 2) == [[[0], [2], [4], 2], [[1], [3], [5], 2]]
