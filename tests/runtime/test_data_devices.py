"""A process that feeds several devices gets, in one batch, what as many single-device processes would get."""

from itertools import product

import pytest
from crosstrain.data.sharding import BatchSplit, rank_steps, steps

ROWS = range(1, 20)


def batches(rows: int, size: int) -> list[list[int]]:
    return [list(range(at, min(at + size, rows))) for at in range(0, rows, size)]


def share(rows: int, size: int, parts: int, devices: int, part: int, **how: object) -> list[list[int]]:
    dealing = BatchSplit(parts, part, size, devices=devices, **how)  # type: ignore[arg-type]
    dealt = [list(own) for own, _ in rank_steps(batches(rows, size), dealing) if own is not None]
    assert len(dealt) == steps(-(-rows // size), dealing, rows)
    return dealt


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("even", [True, False])
@pytest.mark.parametrize("drop_last", [False, True])
def test_devices_of_one_process_share_its_batch(split: bool, even: bool, drop_last: bool) -> None:
    for rows, processes, devices in product(ROWS, (1, 2), (2, 3)):
        size = 6 * processes if split else 2
        how = {"split": split, "even": even, "drop_last": drop_last}
        alone = [
            share(rows, size, processes * devices, 1, part, **how) for part in range(processes * devices)
        ]
        for process in range(processes):
            group = alone[process * devices : (process + 1) * devices]
            most = max(map(len, group))
            wanted = [
                [row for one in group for row in (one[step : step + 1] or [[]])[0]] for step in range(most)
            ]
            assert share(rows, size, processes, devices, process, **how) == wanted


def test_completed_batches_have_one_shape() -> None:
    for rows in ROWS:
        found = share(rows, 2, 1, 4, 0, even=True)
        assert {len(batch) for batch in found} == {8}


def test_counts_tell_real_rows_from_completion() -> None:
    last = list(rank_steps(batches(11, 2), BatchSplit(1, 0, 2, devices=4)))[-1]
    assert last.counts.rows == (8,)
    assert last.counts.real == (3,)


def test_weighted_batches_are_not_completed_for_devices() -> None:
    assert share(11, 8, 1, 4, 0, split=True, even="weighted") == batches(11, 8)
    assert share(11, 2, 1, 4, 0, even="weighted") == [list(range(8)), [8, 9, 10]]


def test_batches_of_varying_size_stay_whole() -> None:
    groups = [[0], [1, 2], [3, 4, 5], [6]]
    dealing = BatchSplit(1, 0, None, devices=3)
    assert [(list(own or ()), counts.real) for own, counts in rank_steps(groups, dealing)] == [
        ([0, 1, 2, 3, 4, 5], (6,)),
        ([6, 0, 1, 2], (1,)),
    ]


def test_a_batch_that_cannot_be_split_over_the_devices_is_refused() -> None:
    with pytest.raises(ValueError, match="6 is not a multiple of the 4 devices"):
        BatchSplit(1, 0, 6, split=True, devices=4)
