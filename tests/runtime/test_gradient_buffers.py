"""The buffers that gradients travel in: their layout, their memory, and what reading the flags costs."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, DistributedDataParallelKwargs
from crosstrain.step.gradients import GradientSync
from crosstrain.step.model import sync_of
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.runtime.nets import State
from tests.support.ranks import errors_of, run_ranks

VIEWS = DistributedDataParallelKwargs(gradient_as_bucket_view=True)


def sync(model: nn.Module) -> GradientSync:
    found = sync_of(model)
    assert isinstance(found, GradientSync)
    return found


# -- layout -------------------------------------------------------------------------------------------


def _channels_last(views: bool) -> list[bool]:
    accelerator = Accelerator(cpu=True, kwargs_handlers=[VIEWS] if views else None)
    torch.manual_seed(0)
    model = accelerator.prepare(nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last))
    images = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    accelerator.backward(model(images).square().mean())
    assert model.weight.grad is not None
    buffered = next(view for view in sync(model)._buckets[0].views if view.dim() == 4)
    return [
        tensor.is_contiguous(memory_format=torch.channels_last) for tensor in (buffered, model.weight.grad)
    ]


@pytest.mark.parametrize("views", [False, True])
def test_gradients_of_channels_last_keep_their_strides(views: bool) -> None:
    assert run_ranks(_channels_last, 2, views) == [[True, True]] * 2


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


def start_all(averaging: GradientSync) -> None:
    """As if the buckets had been full already."""
    for slot in averaging._slots:
        if slot.arrived:
            slot.bucket.pending = slot.bucket.pending or object()  # type: ignore[assignment]


def _reentrant() -> None:
    accelerator = Accelerator(cpu=True, kwargs_handlers=[VIEWS])
    torch.manual_seed(0)
    model = nn.ModuleDict({"twice": nn.Linear(4, 4), "first": nn.Linear(4, 4)})
    model = accelerator.prepare(model)
    x = torch.randn(2, 4, requires_grad=True)
    out = checkpoint(model["twice"], checkpoint(model["twice"], x, use_reentrant=True), use_reentrant=True)
    model["twice"].weight.register_hook(lambda _: start_all(sync(model)))
    accelerator.backward(out.sum())


def test_a_gradient_that_grows_in_the_buffer_is_an_error() -> None:
    for said in errors_of(_reentrant, 2):
        assert "use_reentrant=False" in said


# -- flags --------------------------------------------------------------------------------------------


def _reads(monkeypatched: bool, steps: int) -> tuple[State, int]:
    """Weights, and how often a rank waited for the device to read the flags."""
    read = GradientSync._shares_by_device
    times = 0

    def counts(self: GradientSync) -> list[float]:
        nonlocal times
        times += 1
        return read(self)

    patched: Any = GradientSync
    patched._shares_by_device = counts
    if monkeypatched:
        patched._waits_for_flags = lambda self: True
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    model, optimizer = accelerator.prepare(model, optimizer)
    torch.manual_seed(accelerator.process_index)
    for index in range(steps):
        use = index % 3 == accelerator.process_index
        accelerator.backward(model(torch.randn(5, 4), use).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    return copy.deepcopy(model).state_dict(), times


def test_unused_parameters_stop_no_rank_for_its_device_but_once() -> None:
    expected = run_ranks(_reads, 2, False, 7)
    for (weights, times), (same, _) in zip(run_ranks(_reads, 2, True, 7), expected, strict=True):
        assert times == 1
        assert all(torch.equal(weights[name], same[name]) for name in same)
