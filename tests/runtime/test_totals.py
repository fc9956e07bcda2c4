"""Numbers that a loop adds up without communication, and reduces when it is over."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from crosstrain import Accelerator
from crosstrain.comm.host_links import HostGather
from crosstrain.run import RUN
from crosstrain.utils import operations

from tests.support.ranks import run_ranks


def _reduced() -> None:
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
    several = accelerator.reduce((1 + me, 0.5, torch.tensor([2.0 + me]), torch.tensor(True)), "max")
    assert (several[0], several[1], several[2].tolist()) == (2, 0.5, [3.0])


def _listed(call: Any, calls: list[str]) -> Any:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        calls.append(call.__name__)
        return call(*args, **kwargs)

    return wrapper


def test_numbers_are_reduced_and_what_stands_together_travels_together() -> None:
    run_ranks(_reduced, 2)


def test_one_process_keeps_its_numbers() -> None:
    accelerator = Accelerator(cpu=True)
    sums = {"a": 1 / 3}
    assert accelerator.reduce(sums, "mean") == sums and accelerator.reduce(sums, "mean") is not sums
    with pytest.raises(TypeError, match="it found a str"):
        accelerator.reduce({"name": "x"}, "mean")


class _OneProgram:
    """Two hosts that compute as one program: what a number was read of is the same on both."""

    world, averages = 2, False


def test_hosts_of_one_program_each_have_the_whole_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RUN, "_comm", _OneProgram())
    assert operations.reduce((2.5, 7), "sum") == (2.5, 7)
