"""A loader goes on where it was: skipping batches, saving and loading its position."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain.data.prepare import skip_first_batches
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, RandomSampler

from tests.runtime.loaders import LOADERS, Stream, plain, prepare, seed_all


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(0, 12),
    batch=st.integers(1, 4),
    skip=st.integers(0, 6),
    drop=st.booleans(),
    shuffle=st.booleans(),
)
def test_skipping_gives_the_rest_of_the_same_order(
    n: int, batch: int, skip: int, drop: bool, shuffle: bool
) -> None:
    """Peer bug 5: lengths, the last batch and the counts after `skip_first_batches`."""
    sampler = RandomSampler(range(n), generator=torch.Generator()) if shuffle and n else None

    def fresh() -> DataLoader[Any]:
        if sampler is not None:
            sampler.generator.manual_seed(5)
        return DataLoader(range(n), batch_size=batch, drop_last=drop, sampler=sampler)

    whole = [b.tolist() for b in fresh()]
    loader = prepare(fresh())
    skipped = skip_first_batches(loader, skip)
    assert len(skipped) == len(whole[skip:])
    ends = []
    assert [(b.tolist(), ends.append(skipped.end_of_dataloader))[0] for b in skipped] == whole[skip:]
    assert ends == [False] * (len(ends) - 1) + [True] * bool(ends)
    assert len(loader) == len(whole)
    assert [b.tolist() for b in skip_first_batches(fresh(), skip)] == whole[skip:]


def _resumes_exactly(make: Any, save_at: int) -> bool:
    """Whether a run that is interrupted after `save_at` batches and loaded into a new loader is the one that went on."""

    def batches(loader: Any) -> Iterator[Any]:
        for _ in range(3):
            yield from loader

    seed_all()
    whole = [(batch, torch.rand(())) for batch in batches(prepare(make()))]
    seed_all()
    loader = prepare(make())
    first, state = [], None
    for batch in batches(loader):
        first.append((batch, torch.rand(())))
        if len(first) == save_at:
            state = pickle.loads(pickle.dumps(loader.state_dict()))
            streams = torch.get_rng_state(), random.getstate(), np.random.get_state()
            break
    torch.manual_seed(99)  # a new process
    again = prepare(make())
    again.load_state_dict(state)
    torch.set_rng_state(streams[0])
    random.setstate(streams[1])
    np.random.set_state(streams[2])

    def rest(loader: Any) -> Iterator[Any]:
        while loader.epoch < 3:
            yield from loader

    return bool(plain(first + [(batch, torch.rand(())) for batch in rest(again)]) == plain(whole))


@pytest.mark.parametrize("save_at", [1, 2, 4, 5, 7])
@pytest.mark.parametrize(
    "name", ["sequential", "shuffle", "drop last", "generator", "weighted", "subset", "eager batch sampler"]
)
def test_resume_is_exact(name: str, save_at: int) -> None:
    """Peer bug 1: neither the position nor the generator of a shuffled loader is saved, so a resumed run
    repeats samples and leaves others out. Here the batches, and every number drawn besides, are those of a
    run that was
    not interrupted."""
    assert _resumes_exactly(LOADERS[name], save_at)


@pytest.mark.parametrize("save_at", [1, 4, 6])
def test_resume_of_a_stream(save_at: int) -> None:
    assert _resumes_exactly(lambda: DataLoader(Stream(10), batch_size=3), save_at)


def persistent(generator: bool = False) -> DataLoader[Any]:
    own = torch.Generator().manual_seed(3) if generator else None
    return DataLoader(
        range(10), batch_size=3, shuffle=True, generator=own, num_workers=1, persistent_workers=True
    )


@pytest.mark.parametrize(("save_at", "generator"), [(2, False), (4, False), (6, False), (6, True), (8, True)])
def test_resume_with_workers_that_persist(save_at: int, generator: bool) -> None:
    """Torch draws a seed for new workers, and none for those that an earlier pass left: a new process would draw
    one more than the training that went on, and get another order."""
    assert _resumes_exactly(lambda: persistent(generator), save_at)


def test_skip_after_a_load_counts_from_the_start_of_the_epoch() -> None:
    """Scripts written for accelerate skip by hand after load_state; that must not skip twice."""

    def fresh() -> Any:
        return prepare(DataLoader(range(10), batch_size=2, shuffle=True, generator=torch.Generator()))

    loader = fresh()
    walk = iter(loader)
    whole = [next(walk).tolist() for _ in range(3)]
    state = loader.state_dict()
    whole += [b.tolist() for b in walk]
    by_itself, by_hand = fresh(), fresh()
    by_itself.load_state_dict(state)
    by_hand.load_state_dict(state)
    assert [b.tolist() for b in by_itself] == whole[3:]
    assert [b.tolist() for b in skip_first_batches(by_hand, 3)] == whole[3:]
    assert by_itself.epoch == by_hand.epoch == 1
