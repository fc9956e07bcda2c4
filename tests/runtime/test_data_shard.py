"""The arithmetic of sharding against a straight-line reference, over many more cases than processes could run."""

import math
from itertools import product
from typing import Any

import pytest
from crosstrain.data.sharding import BatchSplit, rank_steps, steps
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, SequentialSampler

from tests.runtime.data_reference import Case, expected_whole

EVEN = st.sampled_from([True, False, "weighted"])
SIZES = {"n": st.integers(0, 40), "batch": st.integers(1, 9), "world": st.integers(1, 5)}
CASES = st.builds(Case, **SIZES, drop_last=st.booleans(), even=EVEN, split=st.booleans())
CASES = CASES.filter(lambda case: case.allowed)


def _batches(case: Case) -> BatchSampler:
    return BatchSampler(SequentialSampler(range(case.n)), case.batch, case.drop_last)


def _walks(case: Case) -> list[Any]:
    """The steps of every rank."""
    how = (case.batch, case.split, case.even, case.drop_last)
    return [list(rank_steps(_batches(case), BatchSplit(case.world, r, *how))) for r in range(case.world)]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(1, 6), max_size=12), st.integers(2, 5), EVEN)
def test_batches_of_varying_size_stay_whole(sizes: list[int], world: int, even: object) -> None:
    batches = [[10 * i + j for j in range(size)] for i, size in enumerate(sizes)]
    wanted = expected_whole(batches, world, even)
    for rank in range(world):
        how = BatchSplit(world, rank, None, even=even)  # type: ignore[arg-type]
        got = [(own, counts.real[rank]) for own, counts in rank_steps(batches, how) if own is not None]
        assert got == wanted[rank]
        assert steps(len(batches), how) == len(got)


@settings(max_examples=300, deadline=None)
@given(CASES.filter(lambda case: case.even == "weighted" and case.world > 1))
def test_weighted_mean_of_the_rank_means_is_the_mean_over_the_step(case: Case) -> None:
    """The averaged, weighted gradient of each global batch is the one-process gradient of that global batch."""
    value = [float(7 * i % 11) for i in range(case.n)]
    at = 0
    for step in zip(*_walks(case), strict=True):
        weights = step[0].counts.weights()
        means = [sum(value[i] for i in own) / len(own) for own, _ in step if own is not None]
        averaged = sum(w * m for w, m in zip(weights, means, strict=True)) / case.world
        rows = sum(step[0].counts.real)
        assert math.isclose(averaged, sum(value[at : at + rows]) / rows, rel_tol=1e-12, abs_tol=1e-12)
        at += rows


@pytest.mark.parametrize(
    ("size", "devices", "message"),
    [
        (5, 1, r"batch size 5 is not a multiple of the 2 processes.*weighted"),
        (None, 1, "no batch_size"),
        (6, 2, "6 is not a multiple of the 4 devices"),
    ],
)
def test_what_cannot_be_split_is_refused(size: int | None, devices: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BatchSplit(2, 0, size, split=True, devices=devices)


# -- a process that feeds several devices gets, in one batch, what as many single-device processes would get ----------


def _dealt(rows: int, size: int, parts: int, devices: int, part: int, **how: Any) -> list[list[int]]:
    batches = [list(range(at, min(at + size, rows))) for at in range(0, rows, size)]
    split = BatchSplit(parts, part, size, devices=devices, **how)
    dealt = [list(own) for own, _ in rank_steps(batches, split) if own is not None]
    assert len(dealt) == steps(len(batches), split, rows)
    return dealt


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("drop_last", [False, True])
def test_devices_of_one_process_share_its_batch(split: bool, even: bool, drop_last: bool) -> None:
    for rows, processes, devices in product(range(1, 20), (1, 2), (2, 3)):
        size = 6 * processes if split else 2
        how = {"split": split, "even": even, "drop_last": drop_last}
        every = processes * devices
        alone = [_dealt(rows, size, every, 1, part, **how) for part in range(every)]
        for process in range(processes):
            group = alone[process * devices : (process + 1) * devices]
            wanted = [
                [row for one in group for row in (one[step : step + 1] or [[]])[0]]
                for step in range(max(map(len, group)))
            ]
            assert _dealt(rows, size, processes, devices, process, **how) == wanted
