"""Accumulation windows that scripts open in unusual ways, and leave in the middle."""

import warnings
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, GradScalerKwargs
from crosstrain.state import AcceleratorState
from torch import nn
from torch.optim import SGD
from torch.utils.data import DataLoader

from tests.runtime.nets import WEIGHTED
from tests.support.ranks import on_ranks, run_ranks


def loader(rows: int = 16) -> DataLoader[Any]:
    return DataLoader(torch.randn(rows, 3, generator=torch.Generator().manual_seed(0)), batch_size=4)


def line() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(3, 1)


def _two_models(style: str) -> tuple[str, list[float], list[str]]:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, **WEIGHTED)
    first, second = line(), line()
    one, two = SGD(first.parameters(), 0.1), SGD(second.parameters(), 0.1)
    first, second, one, two, batches = accelerator.prepare(first, second, one, two, loader(13))
    steps = ""

    def train(model: Any, optimizer: Any, x: torch.Tensor, target: float) -> None:
        nonlocal steps
        accelerator.backward((model(x) - target).square().mean())
        optimizer.step()
        optimizer.zero_grad()
        steps += "S" if accelerator.sync_gradients else "."

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for x in batches:
            if style == "together":
                with accelerator.accumulate(first, second):
                    train(first, one, x, 1.0)
                    train(second, two, x, 2.0)
            else:
                with accelerator.accumulate(first), accelerator.accumulate(second):
                    train(first, one, x, 1.0)
                    train(second, two, x, 2.0)
    weights = torch.cat([first.weight, second.weight]).flatten().tolist()
    return steps, weights, [str(warning.message) for warning in caught]


def test_one_accumulate_inside_another_is_one_micro_batch() -> None:
    """accelerate counts both: the outer model then steps at every batch, on gradients that were not averaged, and
    the ranks' weights part without a word."""
    steps, weights, said = run_ranks(_two_models, 1, "together")[0]
    assert (steps, said) == ("..SS..SS", [])
    for world in (1, 2):
        for nested_steps, nested, said in run_ranks(_two_models, world, "nested"):
            assert (nested_steps, said) == (steps, [])
            assert nested == pytest.approx(weights, abs=1e-6)


def test_memory_that_was_freed_holds_no_open_window() -> None:
    """accelerate's next training would never step: `sync_gradients` stays as the last micro-batch left it."""
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    model = line()
    model, optimizer, batches = accelerator.prepare(model, SGD(model.parameters(), 0.1), loader())
    for x in batches:
        with accelerator.accumulate(model):
            accelerator.backward(model(x).sum())
        break
    assert not accelerator.sync_gradients
    model, optimizer, batches = accelerator.free_memory(model, optimizer, batches)
    assert (model, optimizer, batches) == (None, None, None)
    model = line()
    model, optimizer = accelerator.prepare(model, SGD(model.parameters(), 0.1))
    accelerator.backward(model(torch.ones(1, 3)).sum())
    optimizer.step()
    assert not torch.equal(model.weight, line().weight)
    AcceleratorState._reset_state(True)


# -- An exception in the middle of a step leaves nothing half done -----------------------------------------


class Broken(Exception):
    """What the script's body raises."""


@pytest.mark.parametrize(("micro", "steps"), [("x...", "0011"), (".x..", "0001"), (".c..x..", "0001112")])
@pytest.mark.parametrize("clears", [True, False])
@pytest.mark.parametrize("precision", ["no", "fp16"])
@on_ranks(1, 2)
def test_a_failed_window_is_given_up(precision: str, clears: bool, micro: str, steps: str) -> None:
    """Its first micro-batch or its last may fail: the next one begins a new window, of two micro-batches.

    The gradient is the rank + 1 in every micro-batch (so 1.5 on average of two). "." is a micro-batch that goes well, "x"
    one that raises after its backward pass, "c" after clipping, too.
    """
    options: Any = {"mixed_precision": precision, "kwargs_handlers": [GradScalerKwargs(init_scale=8.0)]}
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, **options)
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    model, optimizer = accelerator.prepare(model, SGD(model.parameters(), 0.1))
    x = torch.full((1, 1), accelerator.process_index + 1.0)
    weights = []
    for kind in micro:
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
    step = -0.1 * (accelerator.num_processes + 1) / 2
    assert weights == pytest.approx([int(number) * step for number in steps], abs=1e-4)
