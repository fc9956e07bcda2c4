"""`gather_for_metrics` knows what it gathers, or says on every rank that it does not."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from crosstrain import Accelerator, skip_first_batches
from torch import Tensor
from torch.utils.data import DataLoader

from tests.support.ranks import on_ranks, run_ranks


def _loader(accelerator: Accelerator, n: int, size: int, **options: Any) -> Any:
    return accelerator.prepare(DataLoader(torch.arange(float(n)), batch_size=size, **options))


class Batch(NamedTuple):
    """Rows in hand, their step's number, and this process's rank."""

    x: Tensor
    step: int
    rank: int


# What a script gathers that is neither the batch's rows nor one value: for 16 rows in batches of 4.
NOT_ROWS: dict[str, Callable[[Batch], Any]] = {
    "filtered": lambda b: b.x[:3],
    "filtered on one": lambda b: b.x[:3] if b.rank == 1 else b.x,
    "filtered late": lambda b: {"x": b.x, "some": b.x[:3] if b.step else b.x},
    "filtered large": lambda b: torch.ones(4, 5000)[: 4 if b.rank else 3],
    "none left": lambda b: b.x[b.x < 0],
    "array beside words": lambda b: {"x": b.x.numpy()[:3], "words": "these"},
    # 11 rows, whose last step is uneven.
    "in an uneven step": lambda b: b.x[:3] if b.rank == 0 and b.step else b.x,
    "listed": lambda b: [str(i) for i in b.x.tolist()][b.rank :],
    # 10 rows in batches of 5, which have weights.
    "weighted": lambda b: b.x if b.rank else b.x.new_zeros(4),
}


def _no_rows(accelerator: Accelerator, name: str) -> Any:
    n, size = {"in an uneven step": (11, 4), "listed": (11, 4), "weighted": (10, 5)}.get(name, (16, 4))
    for step, x in enumerate(_loader(accelerator, n, size)):
        given = NOT_ROWS[name](Batch(x, step, accelerator.process_index))
        accelerator.gather_for_metrics(given, use_gather_object=name == "listed")


def _said(case: Callable[..., Any], options: dict[str, Any], *args: Any) -> str:
    accelerator = Accelerator(cpu=True, **options)
    try:
        case(accelerator, *args)
    except RuntimeError as error:
        accelerator.wait_for_everyone()  # all ranks have raised, and can go on together
        return str(error)
    return "no error"


def _name(case: Any) -> str:
    """A function's name, the same in every process that collects the tests."""
    return str(case.__name__.strip("_"))


@pytest.mark.parametrize("name", NOT_ROWS)
def test_what_is_neither_rows_nor_one_value_is_an_error_on_all_ranks(name: str) -> None:
    """Plain: a tensor of another size is gathered and counted, or hangs where only one rank has it."""
    options = {"split_batches": True, "even_batches": "weighted"} if name == "weighted" else {}
    texts = run_ranks(_said, 2, _no_rows, options, name)
    assert len(set(texts)) == 1
    assert texts[0].startswith(f"{__file__}:{_line_of(_no_rows)}: gather_for_metrics got a ")
    assert "accelerator.gather()" in texts[0] and "accelerator.reduce()" in texts[0]
    assert "Dimension 0 must be these rows (" in texts[0]


def _line_of(work: Callable[..., Any]) -> int:
    code = work.__code__
    lines = Path(code.co_filename).read_text().splitlines()
    inside = range(code.co_firstlineno, len(lines))
    return next(number + 1 for number in inside if "gather_for_metrics" in lines[number])


def _unprepared(accelerator: Accelerator) -> Any:
    plain = DataLoader(torch.arange(8.0), batch_size=4)
    for _ in _loader(accelerator, 10, 4):
        for y in plain:
            accelerator.gather_for_metrics(y)


def test_the_loop_of_an_unprepared_loader_inside_a_prepared_one_is_an_error() -> None:
    """Plain: 8 rows of 4, or 2 of 8 where the outer batch is the last one."""
    for text in run_ranks(_said, 2, _unprepared, {}):
        assert text.startswith(f"{__file__}:{_line_of(_unprepared)}: ")
        assert "a DataLoader that was not prepared" in text
        assert "accelerator.prepare()" in text


def _collected(accelerator: Accelerator) -> Any:
    return accelerator.gather_for_metrics(torch.cat(list(_loader(accelerator, 11, 3))))


def _left_over(accelerator: Accelerator) -> Any:
    for x in _loader(accelerator, 11, 3):  # noqa: B007 - the last batch is meant
        pass
    return accelerator.gather_for_metrics(x)


def _collected_names(accelerator: Accelerator) -> Any:
    names = [str(i) for x in _loader(accelerator, 11, 3) for i in x.tolist()]
    return accelerator.gather_for_metrics({"names": names}, use_gather_object=True)


def _collected_inside(accelerator: Accelerator) -> Any:
    """12 rows, which look like 3 for each of the outer batch's 4."""
    for _ in _loader(accelerator, 7, 4):
        accelerator.gather_for_metrics(torch.cat(list(_loader(accelerator, 23, 4))))


COUNTED = [_collected, _left_over, _collected_names, _collected_inside]


@pytest.mark.parametrize("case", COUNTED, ids=_name)
def test_rows_that_complete_a_batch_are_not_counted_after_the_loop(case: Any) -> None:
    """Plain: 12 of 11, and 18 of 24 where the collected rows are cut like the outer batch's."""
    texts = run_ranks(_said, 2, case, {})
    assert len(set(texts)) == 1
    assert texts[0].startswith(f"{__file__}:")
    assert "after the loop over Tensor" in texts[0]
    assert "for each batch, in the loop" in texts[0]


# -- legal neighbours ---------------------------------------------------------------------------------


@on_ranks(2)
def test_what_is_legal_stays_so() -> None:
    accelerator = Accelerator(cpu=True)
    gather = accelerator.gather_for_metrics
    plain = DataLoader(torch.arange(3.0), batch_size=3)
    assert [gather(x).numel() for x in plain] == [6]
    for step, x in enumerate(_loader(accelerator, 8, 2)):
        assert gather(x + next(iter(plain))[:1] * 0).tolist() == list(range(4 * step, 4 * step + 4))
    assert [gather(x).numel() for x, _ in zip(_loader(accelerator, 8, 2), plain, strict=False)] == [4]
    for _ in plain:
        assert [gather(x).numel() for x in _loader(accelerator, 8, 2)] == [4, 4]
    # After a loop.
    assert sorted(gather(torch.cat(list(_loader(accelerator, 12, 3)))).tolist()) == list(range(12))
    uneven = sum(len(x) for x in _loader(accelerator, 11, 3))
    assert gather(torch.tensor([float(uneven)])).tolist() == [6.0, 6.0]
    assert gather(torch.tensor(uneven)).tolist() == [6, 6]
    assert gather(torch.ones(5)).numel() == 10
    skipped = skip_first_batches(_loader(accelerator, 11, 2), 1)
    assert [i for x in skipped for i in gather(x).tolist()] == list(range(4, 11))
    for _ in _loader(accelerator, 7, 4):  # an inner loop that completes nothing: not cut as the outer is
        inner = torch.cat(list(_loader(accelerator, 24, 4)))
        assert sorted(gather(inner).tolist()) == list(range(24))
    for _ in _loader(accelerator, 8, 4):
        assert len(gather(["a"] * (1 + accelerator.process_index), use_gather_object=True)) == 3


def _several() -> list[str]:
    accelerator = Accelerator(cpu=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            rows: list[float] = []
            for x in _loader(accelerator, 11, 4):
                rows += accelerator.gather_for_metrics(x.repeat_interleave(2)).tolist()
            assert rows == [i // 2 for i in range(22)]
            for x in _loader(accelerator, 16, 4):
                accelerator.gather_for_metrics(x.repeat_interleave(2))
    return [str(warning.message) for warning in caught if "rows of each sample" in str(warning.message)]


def test_several_rows_for_a_sample_are_said_once_where_they_are_cut() -> None:
    """A tensor of k x batch rows may also be laid out otherwise: nothing but the shape tells."""
    zero, one = run_ranks(_several, 2)
    assert len(zero) == 1 and one == []
    assert "2 rows of each sample" in zero[0] and zero[0].startswith(f"{__file__}:")
