"""What `--debug` compares over the ranks, and what is compared without it."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, PartialState
from crosstrain.comm.frames import DistributedOperationException, Frames
from crosstrain.comm.torch_backend import TorchComm
from crosstrain.run import RUN
from torch import Tensor, nn
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


def _device_like(shapes: list[list[int]]) -> tuple[int, str]:
    """Calls with tensors that are on a device, as far as the comparison is concerned; messages and the error."""
    state = PartialState(cpu=True)
    comm = RUN.comm
    assert isinstance(comm, TorchComm)
    messages = 0
    agree = Frames.agree

    def counted(self: Frames, operation: str, describe: str = "") -> None:
        nonlocal messages
        messages += 1
        agree(self, operation, describe)

    Frames.agree = counted  # type: ignore[method-assign]
    try:
        for per_rank in shapes:
            comm._compare("all_gather", [torch.empty(per_rank[state.process_index])])
    except DistributedOperationException as error:
        return messages, str(error)
    return messages, ""


@pytest.mark.parametrize(("env", "messages"), [({}, 1), (DEBUG, 3)])
def test_tensors_on_a_device_are_compared_at_the_first_call_and_in_debug_at_every(
    env: dict[str, str], messages: int
) -> None:
    assert run_ranks(_device_like, 2, [[3, 3], [4, 4], [3, 3]], env=env) == [(messages, "")] * 2
    for count, text in run_ranks(_device_like, 2, [[3, 4]], env=env):
        assert count == 1
        assert "rank 0: all_gather of (3,) float32" in text
        assert "rank 1: all_gather of (4,) float32" in text
    later = [text for _, text in run_ranks(_device_like, 2, [[3, 3], [3, 4]], env=env)]
    assert all(("disagree" in text) == bool(env) for text in later)


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


def _trained() -> list[Any]:
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    for step in range(3):
        optimizer.zero_grad()
        rows: Tensor = torch.full((2, 3), 1.0 + step + accelerator.process_index)
        accelerator.backward(model(rows).square().mean())
        optimizer.step()
    return [param.tolist() for param in model.parameters()]


def test_debug_trains_the_same() -> None:
    assert run_ranks(_trained, 2, env=DEBUG) == run_ranks(_trained, 2)


def test_the_states_switch_reaches_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was kept, and nobody read it."""
    monkeypatch.setenv("ACCELERATE_DEBUG_MODE", "true")
    state = PartialState(cpu=True)
    assert state.debug
    assert RUN.comm.debug
    state.debug = False
    assert not RUN.comm.debug
    PartialState._reset_state()
    assert not RUN.debug


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
