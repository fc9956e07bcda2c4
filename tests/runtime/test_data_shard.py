"""The arithmetic of sharding against a straight-line reference, over many more cases than processes could run."""

from __future__ import annotations

import math

import pytest
from crosstrain.data.sharding import BatchSplit, Counts, cut, rank_steps, steps
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, SequentialSampler

from tests.runtime.data_reference import Case, expected, expected_whole

EVEN = st.sampled_from([True, False, "weighted"])
CASES = st.builds(
    Case,
    n=st.integers(0, 40),
    batch=st.integers(1, 9),
    world=st.integers(1, 5),
    drop_last=st.booleans(),
    even=EVEN,
    split=st.booleans(),
).filter(lambda case: case.allowed)


def _batches(case: Case) -> BatchSampler:
    return BatchSampler(SequentialSampler(range(case.n)), case.batch, case.drop_last)


def _dealing(case: Case, rank: int) -> BatchSplit:
    return BatchSplit(case.world, rank, case.batch, case.split, case.even, case.drop_last)


@settings(max_examples=600, deadline=None)
@given(CASES)
def test_every_rank_gets_the_rows_the_reference_says(case: Case) -> None:
    wanted = expected(list(range(case.n)), case)
    for rank in range(case.world):
        got = [
            (list(own), counts)
            for own, counts in rank_steps(_batches(case), _dealing(case, rank))
            if own is not None
        ]
        if case.world == 1:  # one process: the user's own batches, nothing completed
            assert [rows for rows, _ in got] == list(_batches(case))
            continue
        assert [rows for rows, _ in got] == [rows for rows, _ in wanted[rank]]
        assert [counts.real[rank] for _, counts in got] == [real for _, real in wanted[rank]]
        assert [counts.rows[rank] for _, counts in got] == [len(rows) for rows, _ in wanted[rank]]


@settings(max_examples=600, deadline=None)
@given(CASES)
def test_every_rank_knows_the_counts_of_all(case: Case) -> None:
    """`real` of all ranks is known on each rank, and over a pass it adds up to the samples of the pass."""
    seen = [
        [counts for _, counts in rank_steps(_batches(case), _dealing(case, r))] for r in range(case.world)
    ]
    assert all(counts == seen[0] for counts in seen)
    if not case.drop_last:
        assert sum(sum(counts.real) for counts in seen[0]) == case.n


@settings(max_examples=600, deadline=None)
@given(CASES)
def test_the_number_of_batches_is_known_beforehand(case: Case) -> None:
    batches = _batches(case)
    for rank in range(case.world):
        dealt = sum(own is not None for own, _ in rank_steps(batches, _dealing(case, rank)))
        assert steps(len(batches), _dealing(case, rank), case.n) == dealt


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
    walks = [list(rank_steps(_batches(case), _dealing(case, r))) for r in range(case.world)]
    at = 0
    for step in zip(*walks, strict=True):
        weights = step[0].counts.weights()
        means = [sum(value[i] for i in own) / len(own) for own, _ in step if own is not None]
        averaged = sum(w * m for w, m in zip(weights, means, strict=True)) / case.world
        rows = sum(step[0].counts.real)
        assert math.isclose(averaged, sum(value[at : at + rows]) / rows, rel_tol=1e-12, abs_tol=1e-12)
        at += rows


def test_even_batches_weigh_exactly_one() -> None:
    """1.0 and not 0.9999999: a multiplication by it changes no bit."""
    for world in range(1, 9):
        for rows in range(1, 50):
            assert set(Counts((rows,) * world, (rows,) * world).weights()) == {1.0}


def test_the_filler_weighs_nothing_and_is_not_real() -> None:
    piece = cut(2, 4, 0, "weighted")
    assert piece.bounds == ((0, 1), (1, 2), (0, 1), (0, 1))
    assert piece.counts == Counts((1, 1, 1, 1), (1, 1, 0, 0))
    assert piece.counts.weights() == (2.0, 2.0, 0.0, 0.0)


def test_nothing_is_read_ahead_of_the_step_in_hand() -> None:
    drawn: list[int] = []

    def batches() -> object:
        for i in range(6):
            drawn.append(i)
            yield [i]

    walk = rank_steps(batches(), BatchSplit(2, 0, 1))  # type: ignore[arg-type]
    next(walk)
    assert drawn == [0, 1]


def test_splitting_what_cannot_be_split_says_so() -> None:
    with pytest.raises(ValueError, match=r"batch size 5 is not a multiple of the 2 processes.*weighted"):
        BatchSplit(2, 0, 5, split=True)
    with pytest.raises(ValueError, match="no batch_size"):
        BatchSplit(2, 0, None, split=True)
    with pytest.raises(ValueError, match="batch of 3 rows although its batch_size is 2"):
        list(rank_steps([[1, 2, 3]], BatchSplit(2, 0, 2, split=True)))
    BatchSplit(2, 0, 5, split=True, even="weighted")
    BatchSplit(1, 0, 5, split=True)
