"""Iterable data sets over real processes: dispatched by process 0, or sharded."""

from __future__ import annotations

import itertools
import time
from collections import namedtuple
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import torch
from crosstrain.comm import torch_backend
from crosstrain.data.prepare import skip_first_batches
from torch.utils.data import DataLoader, IterableDataset

from tests.runtime.data_reference import Case, expected
from tests.runtime.loaders import ACTIVE, SizedStream, Stream, plain, prepare, resumed
from tests.support.ranks import errors_of, run_ranks, this_rank


def _grid(world: int) -> list[tuple[Case, bool, int]]:
    options = itertools.product((0, 1, 2, 3, 5, 7, 8), (1, 2, 3, 4), (True, False), (True, False, "weighted"))
    cases = [Case(*o[:2], world, *o[2:], split) for o in options for split in (True, False)]
    return [(case, i % 2 == 0, i % 3) for i, case in enumerate(case for case in cases if case.allowed)]


def _run_grid(world: int, dispatch: bool | None, map_style: bool) -> list[Any]:
    rank = this_rank().rank
    seen = []
    for case, sized, skip in _grid(world):
        data: Any = range(case.n) if map_style else SizedStream(case.n) if sized else Stream(case.n)
        raw = DataLoader(data, case.batch, drop_last=case.drop_last)
        loader = prepare(raw, split_batches=case.split, even_batches=case.even, dispatch_batches=dispatch)
        if skip:
            loader = skip_first_batches(loader, skip)
        batches = [(batch.tolist(), loader.real_rows(rank), loader.end_of_dataloader) for batch in loader]
        seen.append((batches, len(loader) if sized or map_style else None, ACTIVE.current is None))
    return seen


def _check(world: int, by_rank: list[Any], *, full_tail: bool) -> None:
    for i, (case, sized, skip) in enumerate(_grid(world)):
        wanted = expected(list(range(case.n)), case)
        if not full_tail:
            wanted = _completed_to_a_multiple(wanted, case)
        for rank in range(world):
            batches, length, left = by_rank[rank][i]
            share = wanted[rank][skip:]
            assert [(rows, real) for rows, real, _ in batches] == share, (case, sized, skip, rank)
            assert [end for *_, end in batches] == [False] * (len(share) - 1) + [True] * bool(share)
            assert length in (None, len(share)), (case, rank)
            assert left


def _completed_to_a_multiple(wanted: list[Any], case: Case) -> list[Any]:
    """A dispatched tail of n rows is completed to the next multiple of the ranks, from the first batch."""
    full = case.batch if case.split else case.batch * case.world
    tail = case.n % full
    if case.even is not True or case.drop_last or not tail:
        return wanted
    width = -(-tail // case.world)
    first = list(range(min(case.batch, case.n)))
    rows = [
        *range(case.n - tail, case.n),
        *itertools.islice(itertools.cycle(first), width * case.world - tail),
    ]
    for rank, batches in enumerate(wanted):
        real = min(max(tail - rank * width, 0), width)
        batches[-1] = (rows[rank * width : (rank + 1) * width], real)
    return wanted


@pytest.mark.parametrize("world", [2, 3])
def test_dispatched_streams(world: int) -> None:
    """Peer bug 6: with drop_last and less than one global batch accelerate crashes; here nothing is yielded."""
    _check(world, run_ranks(_run_grid, world, world, None, False), full_tail=False)


def test_dispatched_map_style_data_sets() -> None:
    _check(2, run_ranks(_run_grid, 2, 2, True, True), full_tail=False)


@pytest.mark.parametrize("world", [2, 3])
def test_streams_that_every_rank_reads(world: int) -> None:
    """Peer bug 5: with dispatch_batches=False accelerate pads and never drops, and has wrong lengths."""
    _check(world, run_ranks(_run_grid, world, world, False, False), full_tail=True)


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


def _ragged(kind: str) -> list[Any]:
    """Rank r gets batch r of each step; the tail repeats the first. Returns the counts of both ranks, and the ends."""
    rank, sources = this_rank().rank, list(Ragged(kind))
    mine = [sources[rank], sources[2 + rank], sources[4] if rank == 0 else sources[0]]
    loader = prepare(DataLoader(Ragged(kind), batch_size=None))
    counts = []
    for batch, source in zip(loader, mine, strict=True):
        assert plain(batch) == plain(source)
        counts.append((loader.real_rows(0), loader.real_rows(1), loader.end_of_dataloader))
    return counts


@pytest.mark.parametrize("kind", ["plain", "lengths", "strings", "scalar", "sparse", "object"])
def test_ready_made_batches_of_any_kind_arrive_whole(kind: str) -> None:
    """Ragged batches, strings and other objects."""
    assert run_ranks(_ragged, 2, kind) == [[(2, 2, False), (2, 2, False), (1, 0, True)]] * 2


class Rows(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        for i in range(7):
            yield {"x": torch.full((2,), float(i)), "name": f"row {i}", "n": i}


def _cut_rows(split: bool) -> list[Any]:
    loader = prepare(DataLoader(Rows(), batch_size=4), split_batches=split, even_batches="weighted")
    return [(b["name"], b["n"].tolist(), b["x"][:, 0].tolist(), loader.weight) for b in loader]


@pytest.mark.parametrize("split", [True, False])
def test_tensors_and_strings_are_cut_by_row(split: bool) -> None:
    by_rank = run_ranks(_cut_rows, 2, split)
    rows = [[int(n) for batch in seen for n in batch[1]] for seen in by_rank]
    wanted = [[0, 1, 4, 5], [2, 3, 6]] if split else [[0, 1, 2, 3], [4, 5, 6]]
    assert rows == wanted
    for seen in by_rank:
        for names, numbers, values, _ in seen:
            assert names == [f"row {n}" for n in numbers]
            assert values == [float(n) for n in numbers]
    last = [seen[-1][3] for seen in by_rank]
    assert last == ([4 / 3, 2 / 3] if split else [8 / 7, 6 / 7])


class Failing(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(4)
        raise OSError("disk on fire")


def _failing() -> str:
    try:
        list(prepare(DataLoader(Failing(), batch_size=1)))
    except (OSError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"
    return "finished"


def test_a_read_error_on_process_0_ends_all_processes() -> None:
    first, second = run_ranks(_failing, 2)
    assert first == "OSError: disk on fire"
    assert second == "RuntimeError: process 0 could not read the next batch: OSError: disk on fire"


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

    def shard(self, num_shards: int, index: int) -> Shards:
        return Shards(self.shards[index::num_shards])

    def __iter__(self) -> Iterator[int]:
        return itertools.chain.from_iterable(self.shards)


def _sharded(even: Any, drop_last: bool) -> list[Any]:
    rank = this_rank().rank
    data = Shards([[0, 1, 2], [10], [3, 4], [11, 12]])
    loader = prepare(DataLoader(data, batch_size=2, drop_last=drop_last), even_batches=even)
    return [(b.tolist(), loader.real_rows(rank), loader.end_of_dataloader, loader.weight) for b in loader]


@pytest.mark.parametrize(
    ("even", "drop", "first", "second"),
    [
        (
            True,
            False,
            [([0, 1], 2, False, 1.0), ([2, 3], 2, False, 1.0), ([4], 1, True, 1.0)],
            [([10, 11], 2, False, 1.0), ([12, 10], 1, False, 1.0), ([10], 0, True, 1.0)],
        ),
        (
            "weighted",
            False,
            [([0, 1], 2, False, 1.0), ([2, 3], 2, False, 4 / 3), ([4], 1, True, 2.0)],
            [([10, 11], 2, False, 1.0), ([12], 1, False, 2 / 3), ([10], 0, True, 0.0)],
        ),
        (
            False,
            False,
            [([0, 1], None, False, 1.0), ([2, 3], None, False, 1.0), ([4], None, True, 1.0)],
            [([10, 11], None, False, 1.0), ([12], None, True, 1.0)],
        ),
        (True, True, [([0, 1], 2, True, 1.0)], [([10, 11], 2, True, 1.0)]),
    ],
)
def test_a_stream_of_shards_is_read_once_and_ends_together(
    even: Any, drop: bool, first: Any, second: Any
) -> None:
    """Peers let ranks with fewer rows end early, and the others hang in their next collective."""
    assert run_ranks(_sharded, 2, even, drop) == [first, second]


def _resume(kind: str, save_at: int) -> tuple[Any, Any]:
    def fresh() -> Any:
        if kind == "map":
            return prepare(DataLoader(range(9), batch_size=2, shuffle=True), dispatch_batches=True)
        data = Shards([[*range(5)], [*range(10, 14)]]) if kind == "shards" else Stream(9)
        return prepare(DataLoader(data, batch_size=2), dispatch_batches=False if kind == "all" else None)

    return resumed(
        fresh, save_at, 2, lambda batch, loader: (batch, loader.real_rows(1), loader.end_of_dataloader)
    )


@pytest.mark.parametrize("save_at", [1, 3, 4])
@pytest.mark.parametrize("kind", ["map", "dispatched", "all", "shards"])
def test_resume_of_streams_is_exact(kind: str, save_at: int) -> None:
    for whole, again in run_ranks(_resume, 2, kind, save_at):
        assert again == whole


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
