"""An exception in the middle of a step leaves nothing half done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, GradScalerKwargs
from torch import Tensor, nn
from torch.optim import SGD

from tests.support.ranks import run_ranks


class Broken(Exception):
    """What the script's body raises."""


class _Fails(torch.autograd.Function):
    @staticmethod
    def forward(_context: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(_context: Any, _grad: Tensor) -> Tensor:
        raise Broken


@contextmanager
def survived() -> Iterator[None]:
    try:
        yield
    except Broken:
        return
    raise AssertionError("nothing was raised")


def _weight_after(micro_batches: str, clears: bool, precision: str) -> list[float]:
    """Train one weight, whose gradient is the rank + 1 in every micro-batch (so 1.5 on average of two).

    "." is a micro-batch that goes well, "x" one that raises after its backward pass, "c" after clipping, too.
    """
    accelerator = Accelerator(
        cpu=True,
        gradient_accumulation_steps=2,
        mixed_precision=precision,
        kwargs_handlers=[GradScalerKwargs(init_scale=8.0)],
    )
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    model, optimizer = accelerator.prepare(model, SGD(model.parameters(), 0.1))
    x = torch.full((1, 1), accelerator.process_index + 1.0)
    weights = []
    for kind in micro_batches:
        try:
            with accelerator.accumulate(model):
                accelerator.backward(model(x).sum())
                if kind == "c":
                    accelerator.clip_grad_norm_(model.parameters(), 100.0)
                if kind != ".":
                    raise Broken
                optimizer.step()
                optimizer.zero_grad()
        except Broken:
            if clears:
                optimizer.zero_grad()
        weights.append(model.weight.item())
    return weights


@pytest.mark.parametrize("clears", [True, False])
@pytest.mark.parametrize("precision", ["no", "fp16"])
@pytest.mark.parametrize("world", [1, 2])
def test_a_window_that_failed_is_given_up(world: int, precision: str, clears: bool) -> None:
    """Its first micro-batch or its last may fail: the next one begins a new window, of two micro-batches."""
    step = 0.1 * (world + 1) / 2
    for ours in run_ranks(_weight_after, world, "x...", clears, precision):
        assert ours == pytest.approx([0, 0, -step, -step], abs=1e-4)
    for ours in run_ranks(_weight_after, world, ".x..", clears, precision):
        assert ours == pytest.approx([0, 0, 0, -step], abs=1e-4)
    for ours in run_ranks(_weight_after, world, ".c..x..", clears, precision):
        assert ours == pytest.approx([0, 0, 0, -step, -step, -step, -2 * step], abs=1e-4)


def _failing_backward(inside: bool) -> list[list[float]]:
    """The backward pass fails when it has been through half of the model."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    first, second = nn.Linear(600, 600), nn.Linear(600, 600)  # a bucket each
    model = nn.Sequential(first, second)
    model, optimizer = accelerator.prepare(model, SGD(model.parameters(), 0.1))
    x = torch.full((1, 600), accelerator.process_index + 1.0)
    with survived():
        if inside:
            with accelerator.accumulate(model):
                accelerator.backward(second(_Fails.apply(first(x))).sum())
        else:
            accelerator.backward(second(_Fails.apply(first(x))).sum())
    optimizer.zero_grad()
    accelerator.backward(model(x).sum())
    gradients = [float(param.grad.double().sum()) for param in model.parameters() if param.grad is not None]
    optimizer.step()
    return [gradients, [float(param.detach().double().sum()) for param in model.parameters()]]


@pytest.mark.parametrize("inside", [True, False])
def test_a_backward_pass_that_failed_leaves_nothing_in_the_next(inside: bool) -> None:
    one, two = run_ranks(_failing_backward, 2, inside)
    assert one == two
    torch.manual_seed(0)
    first, second = nn.Linear(600, 600), nn.Linear(600, 600)
    ((second(first(torch.ones(1, 600))).sum() + second(first(torch.ones(1, 600) * 2)).sum()) / 2).backward()
    expected = [
        float(p.grad.double().sum()) for m in (first, second) for p in m.parameters() if p.grad is not None
    ]
    assert one[0] == pytest.approx(expected, rel=1e-4, abs=1e-4)
