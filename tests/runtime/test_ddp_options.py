"""DistributedDataParallel's options and members, and a backward pass that fails."""

from typing import Any

import pytest
import torch
from crosstrain import Accelerator, DistributedDataParallelKwargs
from crosstrain.utils import GradientAccumulationPlugin
from torch import Tensor, nn
from torch.optim import SGD

from tests.support.ranks import on_ranks, run_ranks


class Mean(nn.Module):
    """Its buffer follows its own rows; a second layer is used by nobody."""

    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1, bias=False)
        nn.init.ones_(self.layer.weight)
        self.unused = nn.Linear(1, 1)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += x.mean().detach()
        return self.layer(x)


def _train(send: bool, every: bool, views: bool) -> tuple[float, float, list[float]]:
    ddp = DistributedDataParallelKwargs(
        broadcast_buffers=send, find_unused_parameters=True, gradient_as_bucket_view=views
    )
    plugin = GradientAccumulationPlugin(num_steps=2, sync_each_batch=every)
    accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin, kwargs_handlers=[ddp])
    model = Mean()
    model, optimizer = accelerator.prepare(model, SGD(model.parameters(), 0.1))
    grads = []
    for _ in range(2):
        with accelerator.accumulate(model):
            accelerator.backward(model(torch.full((1, 1), 1.0 + accelerator.process_index)).sum())
            grads.append(model.layer.weight.grad.item())
            optimizer.step()
            optimizer.zero_grad()
    return model.seen.item(), model.layer.weight.item(), grads


@pytest.mark.parametrize("views", [False, True])
def test_buffers_and_windows_as_the_handlers_say(views: bool) -> None:
    (seen, weight, grads), (seen_1, weight_1, grads_1) = run_ranks(_train, 2, True, False, views)
    assert seen == seen_1 == 2.0  # process 0's
    assert weight == weight_1 == pytest.approx(0.85)
    assert (grads, grads_1) == ([0.5, 1.5], [1.0, 1.5])  # local inside the window, averaged at its end
    (seen, weight, grads), (seen_1, weight_1, grads_1) = run_ranks(_train, 2, False, True, views)
    assert (seen, seen_1) == (2.0, 4.0)
    assert weight == weight_1 == pytest.approx(0.85)
    assert grads == grads_1 == [0.75, 1.5]  # averaged each time, against the memory that a window takes


@pytest.mark.parametrize(("active_only", "weight"), [(False, -1.5), (True, -2.0)])
@on_ranks(2)
def test_join(active_only: bool, weight: float) -> None:
    """The last rank has two batches, and the other one has one; each gradient is the sum of a row."""
    accelerator = Accelerator(cpu=True)
    model: Any = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    model, optimizer = accelerator.prepare(model, SGD(model.parameters(), 1.0))
    with model.join(divide_by_initial_world_size=not active_only):
        for _ in range(2 if accelerator.is_last_process else 1):
            accelerator.backward(model(torch.ones(1, 1)).sum())
            optimizer.step()
            optimizer.zero_grad()
    assert model.weight.item() == weight


class _Fails(torch.autograd.Function):
    @staticmethod
    def forward(_context: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_context: Any, _grad: Tensor) -> Tensor:
        raise ArithmeticError


@pytest.mark.parametrize("inside", [True, False])
@on_ranks(2)
def test_a_backward_pass_that_failed_leaves_nothing_in_the_next(inside: bool) -> None:
    """It fails when it has been through half of the model, a bucket each."""
    accelerator = Accelerator(cpu=True)
    first, second = nn.Linear(600, 600), nn.Linear(600, 600)
    for layer in (first, second):
        nn.init.constant_(layer.weight, 0.01)
    model = accelerator.prepare(nn.Sequential(first, second))
    x = torch.full((1, 600), accelerator.process_index + 1.0)
    with accelerator.accumulate(model) if inside else accelerator.autocast(), pytest.raises(ArithmeticError):
        accelerator.backward(second(_Fails.apply(first(x))).sum())  # type: ignore[no-untyped-call]
    model.zero_grad()
    accelerator.backward(model(x).sum())
    found = [param.grad.flatten()[0].item() for param in (first.weight, second.bias)]  # type: ignore[union-attr]
    assert found == pytest.approx([600 * 0.01 * 1.5, 1.0], rel=1e-4)
