"""Numbers that a loop adds up without communication, and reduces when it is over."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from crosstrain import Accelerator
from crosstrain.comm.host_links import HostGather
from torch import Tensor
from torch.distributed import all_reduce  # a name of the script's own, as old as the script
from torch.utils.data import DataLoader

from tests.support.ranks import errors_of, on_ranks


@on_ranks(2)
def test_numbers_are_reduced_and_what_stands_together_travels_together() -> None:
    accelerator = Accelerator(cpu=True)
    me = accelerator.process_index
    calls: list[str] = []
    group: Any = dist.ProcessGroup
    for name in ("allreduce", "allgather", "_allgather_base", "all_gather_single"):
        if hasattr(group, name):
            setattr(group, name, _listed(getattr(group, name), calls))
    nearby: Any = HostGather
    nearby.gather = _listed(nearby.gather, calls)
    sums = {"a": me / 3, "b": torch.full((2,), float(me)), "c": torch.tensor(2.0 * me)}
    found = accelerator.reduce(sums, "mean")
    assert found["a"] == 1 / 6 and isinstance(found["a"], float)
    assert found["b"].tolist() == [0.5, 0.5] and found["c"].item() == 1.0
    large = accelerator.reduce((torch.full((300_000,), float(me)), torch.tensor(float(me))), "mean")
    assert [tensor.max().item() for tensor in large] == [0.5, 0.5]
    calls.clear()
    accelerator.reduce([torch.tensor(1.0), torch.tensor(2.0), torch.ones(3)], "mean")
    assert len(calls) == 1
    summed = accelerator.reduce((me + 1, me + 0.5), "sum")
    assert summed == (3, 2.0) and isinstance(summed[0], int)
    means = accelerator.reduce((numpy.float32(me), numpy.int64(me + 1)), "mean")
    assert means == (0.5, 1.5) and means[0].dtype == "float32"
    arrays = accelerator.reduce((numpy.array([1.0, me]), numpy.array([2 * me])), "sum")
    assert [one.tolist() for one in arrays] == [[2.0, 1.0], [2]]
    several = accelerator.reduce((1 + me, 0.5, torch.tensor([2.0 + me]), torch.tensor(True)), "max")
    assert (several[0], several[1], several[2].tolist()) == (2, 0.5, [3.0])


def _listed(call: Any, calls: list[str]) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls.append(call.__name__)
        return call(*args, **kwargs)

    return wrapper


# -- What `reduce` or a gather returned is not summed or averaged again by a collective of the script's own ---

Given = tuple[Accelerator, Tensor]


def _mean() -> Given:
    accelerator = Accelerator(cpu=True)
    return accelerator, accelerator.reduce(torch.tensor([accelerator.process_index + 1.0, 2.0]), "mean")


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
    "one alone": lambda ours, value: ours.reduce(value if ours.is_main_process else torch.ones(2), "sum"),
}


def _twice(name: str, inference: bool) -> None:
    with torch.inference_mode(inference):
        TWICE[name](*_mean())


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
        accelerator.gather_for_metrics({"rows": accelerator.gather_for_metrics(x), "x": x})


CASES: list[tuple[Any, ...]] = [(_twice, name, False) for name in TWICE]
CASES += [(_twice, "all_reduce", True), (_gathered_in_a_loop,), (_gathered_twice,)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, case[1:])) or case[0].__name__)
def test_what_was_reduced_is_not_reduced_again(case: tuple[Any, ...]) -> None:
    """accelerate: the author's all_reduce over the global value counts every process twice, without a word."""
    for text in errors_of(case[0], 2, *case[1:]):
        assert text.startswith(f"{__file__}:")
        assert "gets the tensor that accelerator." in text
        assert f"() returned at {__file__}:" in text
        assert "a value of this process alone" in text


@on_ranks(2)
def test_what_is_no_second_sum_stays_legal() -> None:
    accelerator, value = _mean()
    out: list[Any] = []
    for op in (dist.ReduceOp.MAX, dist.ReduceOp.MIN):
        dist.all_reduce(value, op=op)
        out.append(value.tolist())
    dist.broadcast(value, src=0)
    dist.all_gather([torch.empty(2), torch.empty(2)], value)
    computed = value * 2
    dist.all_reduce(computed)
    out.append(computed.tolist())
    _, total = _mean()
    total += torch.ones(2)  # of this process alone, as far as anybody knows
    dist.all_reduce(total)
    _, value = _mean()
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
    assert out == [[1.5, 2.0], [1.5, 2.0], [6.0, 8.0], [1.5, 2.0], [1.5, 2.0], 4, [2.0, 2.0]]
