"""Numbers that a loop adds up without communication, and reduces when it is over."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from crosstrain import Accelerator
from crosstrain.comm.host_links import HostGather
from torch.utils.data import DataLoader

from tests.runtime.loaders import Stream
from tests.support.ranks import run_ranks

SHARED: list[dict[str, Any]] = [
    {"split_batches": True, "even_batches": "weighted"},
    {"even_batches": "weighted"},
]


def _totals(mode: dict[str, Any], n: int, size: int) -> tuple[list[float], list[float]]:
    """What is added up without communication, and with a reduction in every step."""
    accelerator = Accelerator(cpu=True, **mode)
    loader = accelerator.prepare(DataLoader(torch.arange(float(n)), batch_size=size))
    number, tensor, each = 0.0, torch.zeros(()), 0.0
    for x in loader:
        mean = x.square().mean()
        number += accelerator.weighted(mean).item() * accelerator.global_rows(x)
        tensor += accelerator.weighted(mean)
        each += accelerator.reduce(mean, "mean").item()
    number = accelerator.reduce(number, "mean")
    tensor = accelerator.reduce(tensor, "mean")
    return [number, tensor.item()], [sum(float(i) ** 2 for i in range(n)), each]


@pytest.mark.parametrize(("n", "size"), [(13, 4), (9, 8), (12, 4), (5, 2)])
@pytest.mark.parametrize("mode", SHARED, ids=str)
def test_a_total_is_that_of_all_rows(mode: dict[str, Any], n: int, size: int) -> None:
    """accelerate: a sum of the processes' own means is not that of the rows where the last batch is uneven."""
    for found, expected in run_ranks(_totals, 2, mode, n, size):
        assert found == pytest.approx(expected)


def _counted(mode: dict[str, Any]) -> list[int]:
    accelerator = Accelerator(cpu=True, **mode)
    rows, tokens, streamed, listed = 0, 0, 0, 0
    for x in accelerator.prepare(DataLoader(torch.arange(13), batch_size=4)):
        rows += accelerator.global_rows(x)
        tokens += accelerator.global_rows(x.repeat_interleave(3))
        listed += accelerator.global_rows([str(i) for i in x.tolist()])
    for x in accelerator.prepare(DataLoader(Stream(7), batch_size=2)):
        streamed += accelerator.global_rows(x)
    return [rows, tokens, listed, streamed]


@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("mode", [{}, {"even_batches": "weighted"}, {"dispatch_batches": True}], ids=str)
def test_every_row_is_counted_once(mode: dict[str, Any], world: int) -> None:
    for rows, tokens, listed, streamed in run_ranks(_counted, world, mode):
        assert (rows, tokens, listed) == (13, 39, 13)
        assert streamed >= 7  # what completes a stream's last batch is not known


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
    loss = torch.tensor(2.0)
    sums = {"a": 1 / 3}
    assert accelerator.weighted(loss) is loss
    assert accelerator.reduce(sums, "mean") == sums and accelerator.reduce(sums, "mean") is not sums
    with pytest.raises(TypeError, match="it found a str"):
        accelerator.reduce({"name": "x"}, "mean")


def _own(mode: dict[str, Any], n: int, size: int) -> dict[str, Any]:
    accelerator = Accelerator(cpu=True, **mode)
    loader = accelerator.prepare(DataLoader(torch.arange(float(n)), batch_size=size))
    own: list[float] = []
    gathered: list[float] = []
    total, seen, tokens = 0.0, 0, 0
    for x in loader:
        gathered += accelerator.gather_for_metrics(x).tolist()
        rows, twice = accelerator.own_rows((x, x.repeat_interleave(3)))
        own += rows.tolist()
        tokens += len(twice)
        total += rows.square().sum().item()
        seen += len(rows)
    return {
        "own": own,
        "gathered": gathered,
        "reduced": accelerator.reduce((total, seen, tokens), reduction="sum"),
    }


@pytest.mark.parametrize(("n", "size"), [(13, 4), (9, 8), (12, 4), (5, 2), (1, 4)])
@pytest.mark.parametrize("mode", [{}, {"split_batches": True}, {"dispatch_batches": True}, *SHARED], ids=str)
def test_own_rows_are_this_ranks_part_of_what_is_gathered(mode: dict[str, Any], n: int, size: int) -> None:
    """Every row once over all ranks, whatever completes the last batch; a rank may have none."""
    ranks = run_ranks(_own, 2, mode, n, size)
    wanted = [float(i) for i in range(n)]
    assert sorted(ranks[0]["own"] + ranks[1]["own"]) == wanted
    for rank in ranks:
        assert rank["gathered"] == wanted
        assert rank["reduced"] == (sum(i * i for i in wanted), n, 3 * n)
