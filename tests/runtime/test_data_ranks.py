"""Map-style loaders over real processes: who gets what, who knows what, and what the peers get wrong."""

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, Sampler, SubsetRandomSampler, random_split

from tests.runtime.data_reference import Case, expected, grid
from tests.runtime.loaders import ACTIVE, check, prepare, walked
from tests.support.ranks import infos, on_ranks, run_ranks, this_rank

SIZES = (0, 1, 2, 3, 5, 7, 8, 9, 12)


def _order(case: Case, shuffle: bool) -> list[int]:
    """The order in which a plain loader would read."""
    if not case.n:
        return []
    generator = torch.Generator().manual_seed(case.n)
    return next(iter(DataLoader(range(case.n), case.n, shuffle=shuffle, generator=generator))).tolist()


def _run_grid(world: int) -> list[Any]:
    torch.manual_seed(this_rank().rank)  # the order must not depend on the processes' own streams
    seen = []
    for number, case, skip in grid(SIZES, world):
        own = torch.Generator().manual_seed(case.n)
        shuffle = number % 2 == 1 and case.n > 0
        raw = DataLoader(range(case.n), case.batch, shuffle, generator=own, drop_last=case.drop_last)
        seen.append(walked(raw, case, skip))
    return seen


@pytest.mark.parametrize("world", [2, 3, 4])
def test_every_rank_gets_what_the_reference_says(world: int) -> None:
    """Peer bugs 4 and 5 (counts): also after `skip_first_batches`, each rank's real rows are known."""
    by_rank = run_ranks(_run_grid, world, world)
    for number, case, skip in grid(SIZES, world):
        wanted = expected(_order(case, number % 2 == 1), case)
        for rank in range(world):
            check(by_rank[rank][number], wanted[rank][skip:], (case, number, rank))


class Python(Sampler[int]):
    """An order from python's and numpy's streams, drawn partly in __iter__ and partly on the way."""

    def __iter__(self) -> Iterator[int]:
        order = list(range(8))
        random.shuffle(order)
        return iter(np.random.permutation(order).tolist())

    def __len__(self) -> int:
        return 8


def _orders() -> dict[str, Any]:
    rank = this_rank().rank
    torch.manual_seed(rank)
    random.seed(rank)
    np.random.seed(rank)
    samplers: dict[str, Any] = {
        "random": RandomSampler(range(8)),
        "replacement": RandomSampler(range(8), replacement=True, num_samples=40),
        "subset": SubsetRandomSampler(range(8)),
        "python": Python(),
        "own generator": RandomSampler(range(8), generator=torch.Generator().manual_seed(rank)),
    }
    found = {}
    for name, sampler in samplers.items():
        loader = prepare(DataLoader(range(8), batch_size=2, sampler=sampler))
        found[name] = [[batch.tolist() for batch in loader] for _ in range(2)]
    return found | {"own stream": torch.rand(()).item()}


def test_ranks_with_different_streams_share_one_order() -> None:
    """Every rank draws what process 0 would draw, whatever the sampler draws from, and keeps its own stream."""
    by_rank = run_ranks(_orders, 2)
    for name in ("random", "subset", "python", "own generator"):
        for epoch in range(2):
            seen = [row for rank in by_rank for batch in rank[name][epoch] for row in batch]
            assert sorted(seen) == list(range(8)), name
        assert by_rank[0][name][0] != by_rank[0][name][1]
    assert all(len(rank["replacement"][0]) == 10 for rank in by_rank)
    assert by_rank[0]["own stream"] != by_rank[1]["own stream"]


def _unseeded_split(train_rows: tuple[int, int], sampler: bool) -> tuple[list[int], list[str]] | str:
    said = infos()
    rank = this_rank().rank
    torch.manual_seed(rank)
    train, _ = random_split(range(10), [train_rows[rank], 10 - train_rows[rank]])  # type: ignore[arg-type]
    own = SubsetRandomSampler(train.indices)
    loader = DataLoader(range(10), 2, sampler=own) if sampler else DataLoader(train, 2)  # type: ignore[arg-type]
    try:
        prepared = prepare(loader)
    except ValueError as error:
        return str(error)
    return [row for rows in prepared for row in rows.tolist()], said


@pytest.mark.parametrize("sampler", [False, True])
def test_of_a_split_drawn_differently_all_ranks_take_rank_0s(sampler: bool) -> None:
    """accelerate trains on: 693 of 900 items were ever seen, and 48 of 100 validation items were trained on."""
    torch.manual_seed(0)
    train, _ = random_split(range(10), [8, 2])  # type: ignore[arg-type]
    (zero, said), (one, silent) = run_ranks(_unseeded_split, 2, (8, 8), sampler)
    assert len(zero) == len(one) == 4
    assert sorted([*zero, *one]) == sorted(train.indices)
    which = "sampler's indices" if sampler else "subset"
    assert [line.split(" of the loader over")[0] for line in said] == [f"the {which}"]
    assert "all take process 0's" in said[0]
    assert silent == []


def test_subsets_of_different_lengths_are_an_error_on_every_rank() -> None:
    for message in run_ranks(_unseeded_split, 2, (7, 8), False):
        assert "Subset(range) is not the same on all processes: its length" in message
        assert "before a random split" in message


class Secret(Sampler[int]):
    """Shuffles with a source that nobody can see."""

    def __iter__(self) -> Iterator[int]:
        yield from np.random.default_rng(this_rank().rank).permutation(50).tolist()

    def __len__(self) -> int:
        return 50


@on_ranks(2)
def test_an_order_from_a_hidden_source_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"(?s)another order than process.*Seed that source"):
        list(prepare(DataLoader(range(50), batch_size=5, sampler=Secret())))


def _seedable(data_seed: int | None) -> list[list[int]]:
    torch.manual_seed(this_rank().rank)
    loader = prepare(DataLoader(range(8), 4, shuffle=True), use_seedable_sampler=True, data_seed=data_seed)
    passes = [next(iter(loader)).tolist() for _ in range(2)]
    loader.set_epoch(1)
    return [*passes, next(iter(loader)).tolist()]


@pytest.mark.parametrize("seed", [5, None])
def test_a_seedable_sampler_on_differently_seeded_ranks_gives_disjoint_shards(seed: int | None) -> None:
    """Peer bug 16: there each rank seeds its own order, and the shards overlap."""
    first, second = run_ranks(_seedable, 2, seed)
    for a, b in zip(first, second, strict=True):
        assert sorted(a + b) == list(range(8))
    assert first[0] == first[1] != first[2]  # a broken-off pass is repeated; the next epoch is another order


class Augmented(Dataset[Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Tensor:
        info = torch.utils.data.get_worker_info()
        drawn = [float(torch.rand(())), random.random(), float(np.random.rand()), float(info.seed % 1000003)]
        return torch.tensor(drawn, dtype=torch.float64)


def _own_seeds(worker: int) -> None:
    torch.manual_seed(worker)
    random.seed(worker)
    np.random.seed(42 + worker)


def _augment(own: Any) -> list[list[float]]:
    torch.manual_seed(5)
    # The ranks come from a fork server, and would start their workers by one: seconds for each.
    given: Any = {"num_workers": 1, "multiprocessing_context": "fork", "worker_init_fn": own}
    loader = prepare(DataLoader(Augmented(), batch_size=2, **given))
    return [row for batch in loader for row in batch.tolist()]


@pytest.mark.parametrize("own", [None, _own_seeds])
def test_workers_of_different_ranks_draw_different_numbers(own: Any) -> None:
    """Peer bug 10: after `set_seed`, accelerate's workers augment identically on every rank."""
    first, second = run_ranks(_augment, 2, own, forks=True)
    for one, other in zip(first, second, strict=True):
        assert all(a != b for a, b in zip(one, other, strict=True))
    torch.manual_seed(5)
    whole = DataLoader(Augmented(), batch_size=1, num_workers=1, worker_init_fn=own)
    plain = [row for batch in whole for row in batch.tolist()]
    assert first[:2] == plain[:2]  # process 0 keeps torch's own seeds, and the script's


@on_ranks(2)
def test_two_active_loaders_with_different_remainders_are_an_error_not_a_guess() -> None:
    rank = this_rank().rank
    first = prepare(DataLoader(range(5), batch_size=4), split_batches=True, even_batches="weighted")
    second = prepare(DataLoader(range(6), batch_size=4), split_batches=True, even_batches="weighted")
    for number, _ in enumerate(zip(first, second, strict=True)):
        if number:
            with pytest.raises(RuntimeError, match=r"range of 1\+0 rows, range of 1\+1 rows"):
                ACTIVE.weight(rank)
        else:
            assert ACTIVE.weight(rank) == 1.0
    assert ACTIVE.weight(rank) == 1.0
    last = 0.0 if rank else 2.0
    weights = [(ACTIVE.weight(rank), first.weight, first.remainder) for _ in first]
    assert weights == [(1.0, 1.0, 0), (last, last, 1)]
