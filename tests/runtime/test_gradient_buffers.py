"""The buffers that gradients travel in: their layout, their memory, and what reading the flags costs."""

from __future__ import annotations

import copy

import pytest
import torch
from crosstrain import Accelerator, DistributedDataParallelKwargs
from crosstrain.step.gradients import GradientSync
from crosstrain.step.model import sync_of
from torch import Tensor, nn

from tests.runtime.nets import State
from tests.support.ranks import run_ranks


def sync(model: nn.Module) -> GradientSync:
    found = sync_of(model)
    assert isinstance(found, GradientSync)
    return found


# -- gradient_as_bucket_view --------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 4))
        self.sometimes, self.never = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, use: bool) -> Tensor:
        out: Tensor = self.layers(x)
        return self.sometimes(out) if use else out


def _train(views: bool, set_to_none: bool) -> tuple[State, int, int]:
    """The weights; bytes of all gradients; bytes of gradients and buffers, each piece of memory counted once."""
    handlers = [DistributedDataParallelKwargs(gradient_as_bucket_view=views)]
    accelerator = Accelerator(cpu=True, kwargs_handlers=handlers, gradient_accumulation_steps=2)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    torch.manual_seed(accelerator.process_index)
    for index in range(8):
        with accelerator.accumulate(model):
            use = index % 3 == accelerator.process_index
            accelerator.backward(model(torch.randn(5, 4), use).square().mean())
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            if index < 7:
                optimizer.zero_grad(set_to_none=set_to_none)
    gradients = [param.grad for param in model.parameters() if param.grad is not None]
    pieces = [*gradients, *(bucket.flat for bucket in sync(model)._buckets)]
    memory = {piece.untyped_storage().data_ptr(): piece.untyped_storage().nbytes() for piece in pieces}
    return (
        copy.deepcopy(model).state_dict(),
        sum(gradient.nbytes for gradient in gradients),
        sum(memory.values()),
    )


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_that_stay_in_the_buffers_are_the_same_and_take_no_second_copy(set_to_none: bool) -> None:
    plain = run_ranks(_train, 2, False, set_to_none)
    views = run_ranks(_train, 2, True, set_to_none)
    for (expected, size, twice), (weights, same_size, once) in zip(plain, views, strict=True):
        assert all(torch.equal(expected[name], weights[name]) for name in expected)
        assert size == same_size
        assert twice - once == size
