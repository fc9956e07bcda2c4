"""What `--debug` compares over the ranks, and what is compared without it."""

from __future__ import annotations

import os

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.comm.frames import DistributedOperationException
from crosstrain.run import RUN
from torch.utils.data import DataLoader

from tests.support.ranks import errors_of, run_ranks

DEBUG = {"CROSSTRAIN_DEBUG": "1"}


def _averages(other_shape: bool) -> str:
    """A gradient buffer of another size on rank 1: gloo adds up what does not belong together, or aborts."""
    comm = RUN.start(cpu=True)
    assert comm.debug
    size = 5 if other_shape and comm.rank == 1 else 4
    try:
        work = comm.start_average(torch.full((size,), float(comm.rank)))
    except DistributedOperationException as error:
        return str(error)
    work.wait()
    return "averaged"


def test_debug_compares_the_averaging_of_gradients() -> None:
    for text in run_ranks(_averages, 2, True, env=DEBUG):
        assert "rank 0: the averaging of gradients of (4,) float32 at" in text
        assert "rank 1: the averaging of gradients of (5,) float32 at" in text
        assert __file__ in text
    assert run_ranks(_averages, 2, False, env=DEBUG) == ["averaged"] * 2


def _large_ones(kind: str) -> None:
    accelerator = Accelerator(cpu=True)
    rows = 3000 + accelerator.process_index
    one = torch.ones(rows)
    if kind == "broadcast":
        from crosstrain.utils.operations import broadcast

        broadcast(one)
    else:
        accelerator.reduce(one) if kind == "reduce" else accelerator.gather(one)


@pytest.mark.parametrize("kind", ["gather", "reduce", "broadcast"])
def test_large_tensors_on_the_cpu_are_always_compared(kind: str) -> None:
    for text in errors_of(_large_ones, 2, kind):
        assert "(3000,) float32 at" in text
        assert "(3001,) float32 at" in text


def _common_draws_on_rank_0_alone() -> None:
    accelerator = Accelerator(cpu=True)
    assert accelerator._comm.debug == (os.environ.get("CROSSTRAIN_DEBUG") == "1")
    for _ in accelerator.prepare(DataLoader(torch.arange(8.0), batch_size=2)):
        if accelerator.is_main_process:
            with accelerator.common_draws():
                torch.rand(1)
        accelerator.gather(torch.ones(1))


def test_common_draws_on_some_ranks_only_are_said_in_debug() -> None:
    """What one rank draws there alone is not alike on all of them."""
    for text in errors_of(_common_draws_on_rank_0_alone, 2, env=DEBUG):
        assert f"rank 0: common_draws() at {__file__}:" in text
        assert "rank 1: all_gather of (1,) float32 at" in text
    assert errors_of(_common_draws_on_rank_0_alone, 2) == ["no error"] * 2
