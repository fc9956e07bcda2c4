"""What was not given to `prepare` is named where the training would go wrong without a word."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.state import AcceleratorState
from torch import nn
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    AcceleratorState._reset_state(True)


def loader() -> DataLoader[Any]:
    return DataLoader(torch.linspace(-1, 1, 24).view(8, 3), batch_size=2)


def run(accelerator: Accelerator, model: Any, optimizer: Optimizer, batches: Any) -> None:
    for x in batches:
        with accelerator.accumulate():
            accelerator.backward(model(x).square().mean())
            optimizer.step()
            optimizer.zero_grad()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"gradient_accumulation_steps": 2}, "inside an accumulation window"),
        ({"mixed_precision": "fp16"}, "multiplied by the fp16 loss scale"),
    ],
)
def test_an_optimizer_that_was_not_prepared(options: dict[str, Any], reason: str) -> None:
    """accelerate steps with it at every micro-batch, or on scaled gradients, and says nothing."""
    accelerator = Accelerator(cpu=True, **options)
    model, batches = accelerator.prepare(nn.Linear(3, 1), loader())
    with pytest.raises(RuntimeError, match=f"the SGD was not given to `prepare`, and steps .*{reason}"):
        run(accelerator, model, SGD(model.parameters(), 0.1), batches)


@pytest.mark.parametrize("options", [{"gradient_accumulation_steps": 2}, {"mixed_precision": "fp16"}])
def test_optimizers_that_are_none_of_ours_step_as_ever(options: dict[str, Any]) -> None:
    class Outer(Optimizer):
        """Steps through another optimizer, as ZeRO's, Lookahead and SAM do."""

        def __init__(self, params: Any) -> None:
            self.inner = SGD(params, 0.1)
            super().__init__(self.inner.param_groups, {})

        def step(self, closure: Any = None) -> None:
            self.inner.step()

    accelerator = Accelerator(cpu=True, **options)
    model = nn.Linear(3, 1)
    before = model.weight.detach().clone()
    model, optimizer, batches = accelerator.prepare(model, Outer(list(model.parameters())), loader())
    other = nn.Linear(1, 1)
    own = SGD(other.parameters(), 0.1)
    for x in batches:
        other(torch.ones(1, 1)).sum().backward()
        own.step()
        run(accelerator, model, optimizer, [x])
    assert not torch.equal(model.weight, before)


def test_no_accumulation_steps_at_all_are_an_error() -> None:
    with pytest.raises(ValueError, match="gradient_accumulation_steps=0 must be 1 or more"):
        Accelerator(cpu=True, gradient_accumulation_steps=0)
