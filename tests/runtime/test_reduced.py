"""What `reduce` or a gather returned is not summed or averaged again by a collective of the script's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from crosstrain import Accelerator
from torch import Tensor
from torch.distributed import all_reduce  # a name of the script's own, as old as the script
from torch.utils.data import DataLoader

from tests.support.ranks import run_ranks

Given = tuple[Accelerator, Tensor]


def _reduced() -> Given:
    accelerator = Accelerator(cpu=True)
    mine = torch.tensor([accelerator.process_index + 1.0, 2.0])
    return accelerator, accelerator.reduce(mine, "mean")


# What a script does with the value that was reduced already.
TWICE: dict[str, Callable[[Accelerator, Tensor], Any]] = {
    "all_reduce": lambda ours, value: dist.all_reduce(value),
    "a name of its own": lambda ours, value: all_reduce(value, op=dist.ReduceOp.SUM),
    "an average": lambda ours, value: dist.all_reduce(ours.gather(value), op=dist.ReduceOp.AVG),
    "asynchronous": lambda ours, value: dist.all_reduce(value, async_op=True).wait(),
    "to one": lambda ours, value: dist.reduce(value, dst=0),
    "scattered": lambda ours, value: dist.reduce_scatter_tensor(torch.empty(1), value),
    "large": lambda ours, value: dist.all_reduce(ours.reduce(torch.ones(5000))),
    "by us": lambda ours, value: ours.reduce({"value": value}, "sum"),
    "one of them alone": lambda ours, value: ours.reduce(
        value if ours.is_main_process else torch.ones(2), "sum"
    ),
}


def _twice(name: str, inference: bool) -> None:
    with torch.inference_mode(inference):
        TWICE[name](*_reduced())


def _gathered_in_a_loop() -> None:
    accelerator = Accelerator(cpu=True)
    for x in accelerator.prepare(DataLoader(torch.arange(7.0), batch_size=2)):
        rows = accelerator.gather_for_metrics(x)
        if len(rows) == 3:
            dist.all_reduce(rows)


def _gathered_twice() -> None:
    """It would pass for two rows of each sample."""
    accelerator = Accelerator(cpu=True)
    for x in accelerator.prepare(DataLoader(torch.arange(8.0), batch_size=2)):
        rows = accelerator.gather_for_metrics(x)
        accelerator.gather_for_metrics({"rows": rows, "x": x})


def _said(case: Callable[..., None], *args: Any) -> str:
    try:
        case(*args)
    except RuntimeError as error:
        Accelerator(cpu=True).wait_for_everyone()  # all ranks have raised, and can go on together
        return str(error)
    return "no error"


CASES: list[tuple[Any, ...]] = [(_twice, name, False) for name in TWICE]
CASES += [(_twice, "all_reduce", True), (_gathered_in_a_loop,), (_gathered_twice,)]


@pytest.mark.parametrize(
    "case", CASES, ids=lambda case: " ".join(str(one) for one in case[1:]) or case[0].__name__
)
def test_what_was_reduced_is_not_reduced_again(case: tuple[Any, ...]) -> None:
    """accelerate: the author's all_reduce over the global value counts every process twice, without a word."""
    for text in run_ranks(_said, 2, *case):
        assert text.startswith(f"{__file__}:")
        assert "gets the tensor that accelerator." in text
        assert f"() returned at {__file__}:" in text
        assert "a value of this process alone" in text


def _legal() -> list[Any]:
    accelerator, value = _reduced()
    out: list[Any] = []
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN):
        dist.all_reduce(value, op=op)
        out.append(value.tolist())
    dist.broadcast(value, src=0)
    dist.all_gather([torch.empty(2), torch.empty(2)], value)
    computed = value * 2
    dist.all_reduce(computed)
    out.append(computed.tolist())
    _, total = _reduced()
    total += torch.ones(2)  # of this process alone, as far as anybody knows
    dist.all_reduce(total)
    _, value = _reduced()
    out.append(accelerator.reduce(value, "mean").tolist())
    out.append(accelerator.reduce(value, "sum", scale=0.5).tolist())
    out.append(accelerator.gather(value).numel())
    accelerator.gather_for_metrics(value)
    own = accelerator.reduce(torch.ones(2), "none")
    dist.all_reduce(own)
    out.append(own.tolist())
    alone = [dist.new_group([rank]) for rank in range(2)][accelerator.process_index]
    dist.all_reduce(value, group=alone)
    dist.reduce_scatter_tensor(value[:1], torch.ones(2))  # only written to
    return out


def test_what_is_no_second_sum_stays_legal() -> None:
    for seen in run_ranks(_legal, 2):
        assert seen == [[1.5, 2.0], [1.5, 2.0], [6.0, 8.0], [1.5, 2.0], [1.5, 2.0], 4, [2.0, 2.0]]
