"""Random programs of loops over prepared loaders, every rank simulated in this process, against the
reference.

A program skips batches, breaks off, nests a second loader and goes on for several epochs; at each batch the
rows, the counts of all ranks, the end and the loader that is active must be what the reference says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.data.active_loaders import ActiveLoaders
from crosstrain.data.options import DataPlan
from crosstrain.data.prepare import prepare_loader, skip_first_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, SubsetRandomSampler

from tests.runtime.data_reference import Case, expected

T = TypeVar("T")


class Alone(TorchComm):
    """A rank that hears from the others what it would say itself: all ranks have the same generator here."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank = self.local_rank = rank
        self.world = self.local_world = self.replicas = world
        self.device = torch.device("cpu")

    def broadcast_object(self, obj: T, src: int = 0) -> T:
        return obj

    def all_gather_object(self, obj: object) -> list[object]:
        return [obj] * self.world


@dataclass(frozen=True)
class Loop:
    """One epoch: batches skipped at its start, and the batch after which it is broken off."""

    skip: int
    stop: int | None


CASES = st.builds(
    Case,
    n=st.integers(0, 14),
    batch=st.integers(1, 4),
    world=st.integers(1, 4),
    drop_last=st.booleans(),
    even=st.sampled_from([True, False, "weighted"]),
    split=st.booleans(),
).filter(lambda case: case.allowed)
LOOPS = st.lists(st.builds(Loop, st.integers(0, 2), st.none() | st.integers(0, 3)), min_size=1, max_size=3)


def _loader(case: Case, rank: int, seed: int | None, active: ActiveLoaders) -> Any:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    sampler = None if generator is None else SubsetRandomSampler(range(case.n), generator)
    raw = DataLoader(range(case.n), case.batch, sampler=sampler, drop_last=case.drop_last)
    plan = DataPlan(split_batches=case.split, even_batches=case.even)
    return prepare_loader(raw, Alone(rank, case.world), plan, active)  # type: ignore[arg-type]


def _orders(case: Case, seed: int | None, epochs: int) -> list[list[int]]:
    """What a plain loader with this seed reads, epoch after epoch."""
    if seed is None:
        return [list(range(case.n))] * epochs
    sampler = SubsetRandomSampler(range(case.n), torch.Generator().manual_seed(seed))
    return [list(sampler) for _ in range(epochs)]


def _one_process(order: list[int], case: Case) -> list[tuple[list[int], int]]:
    batches = [order[i : i + case.batch] for i in range(0, case.n, case.batch)]
    return [(b, len(b)) for b in batches if not case.drop_last or len(b) == case.batch]


def _wanted(order: list[int], case: Case) -> list[list[tuple[list[int], int]]]:
    return [_one_process(order, case)] if case.world == 1 else expected(order, case)


@settings(max_examples=150, deadline=None)
@given(CASES, LOOPS, st.none() | st.integers(0, 9), st.booleans())
def test_programs_of_loops(case: Case, loops: list[Loop], seed: int | None, nest: bool) -> None:
    inner_case = Case(5, 2, case.world, even=case.even)
    orders = _orders(case, seed, len(loops))
    for rank in range(case.world):
        active = ActiveLoaders()
        train = _loader(case, rank, seed, active)
        valid = _loader(inner_case, rank, None, active)
        for loop, order in zip(loops, orders, strict=True):
            by_rank = _wanted(order, case)
            share = by_rank[rank][loop.skip :]
            loader = skip_first_batches(train, loop.skip) if loop.skip else train
            assert len(loader) == len(share)
            seen = 0
            for batch in loader:
                step = loop.skip + seen
                rows, real = share[seen]
                seen += 1
                assert batch.tolist() == rows
                assert loader.real_rows(rank) == real
                assert loader.rows(rank) == len(rows)
                for other, batches in enumerate(by_rank):
                    there = batches[step] if step < len(batches) else ([], 0)
                    assert (loader.rows(other), loader.real_rows(other)) == (len(there[0]), there[1])
                assert loader.end_of_dataloader == (seen == len(share))
                assert active.current is loader
                if nest:
                    _evaluate(valid, inner_case, rank, active, stop=seen % 3)
                    assert active.current is loader
                    assert loader.end_of_dataloader == (seen == len(share))
                if seen == loop.stop:
                    break
            assert active.current is None
            assert seen == (len(share) if loop.stop is None or not loop.stop else min(loop.stop, len(share)))


def _evaluate(valid: Any, case: Case, rank: int, active: ActiveLoaders, stop: int) -> None:
    """An evaluation inside the training loop, sometimes broken off."""
    share = _wanted(list(range(case.n)), case)[rank]
    for number, batch in enumerate(valid, 1):
        assert active.current is valid
        assert (batch.tolist(), valid.real_rows(rank)) == share[number - 1]
        assert valid.end_of_dataloader == (number == len(share))
        if number == stop:
            break


@settings(max_examples=100, deadline=None)
@given(CASES.filter(lambda case: not case.drop_last), st.integers(0, 9))
def test_every_sample_is_real_on_exactly_one_rank(case: Case, seed: int) -> None:
    """Decision 7: what `gather_for_metrics` goes by; in the order of the data set when it is not shuffled."""
    steps: dict[int, list[int]] = {}
    for rank in range(case.world):
        loader = _loader(case, rank, None, ActiveLoaders())
        for step, batch in enumerate(loader):
            steps.setdefault(step, []).extend(batch.tolist()[: loader.real_rows(rank)])
    assert [row for step in sorted(steps) for row in steps[step]] == list(range(case.n))
    if case.n:
        shuffled = [
            row
            for rank in range(case.world)
            for loader in [_loader(case, rank, seed, ActiveLoaders())]
            for batch in loader
            for row in batch.tolist()[: loader.real_rows(rank)]
        ]
        assert sorted(shuffled) == list(range(case.n))
