"""Activation checkpointing, used as often as a rank's own data wants it."""

from __future__ import annotations

import pytest
import torch
from crosstrain import Accelerator
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.support.ranks import run_ranks


class Deep(nn.Module):
    """Its gradients fill two buckets; the first one, with `wide`, starts before the backward pass is over."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(2, 2)
        self.wide = nn.Linear(600, 600)

    def again(self, x: Tensor) -> Tensor:
        return x + self.wide(x.mean().expand(1, 600)).mean()


def _batch(rank: int, step: int) -> Tensor:
    return torch.randn(4, 2, generator=torch.Generator().manual_seed(10 * step + rank))


def _loss(model: Deep, x: Tensor, times: int, reentrant: bool | None) -> Tensor:
    x = model.first(x)
    for _ in range(times):
        x = model.again(x) if reentrant is None else checkpoint(model.again, x, use_reentrant=reentrant)
    return x.square().mean()


def _train(reentrant: bool, times: list[list[int]], plain: bool) -> list[list[float]]:
    accelerator = Accelerator(cpu=True)
    model = Deep()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    for step, each in enumerate(times):
        loss = _loss(
            model, _batch(accelerator.process_index, step), each[accelerator.process_index], reentrant
        )
        loss.backward() if plain else accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    return [value.flatten().tolist()[:600] for value in model.state_dict().values()]


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("times", [[[2, 2]], [[1, 2], [3, 1]], [[0, 0], [1, 3]]], ids=str)
def test_ranks_may_checkpoint_differently_often(times: list[list[int]], reentrant: bool, plain: bool) -> None:
    """It hung: the rank that came twice to a parameter started one collective more than the other."""
    model = Deep()
    for step, each in enumerate(times):
        model.zero_grad()
        sum(_loss(model, _batch(rank, step), each[rank], None) / 2 for rank in range(2)).backward()
        with torch.no_grad():
            for param in model.parameters():
                param -= 0.1 * (0 if param.grad is None else param.grad)
    expected = [value.flatten()[:600] for value in model.state_dict().values()]
    for state in run_ranks(_train, 2, reentrant, times, plain):
        for value, right in zip(state, expected, strict=True):
            assert torch.allclose(torch.tensor(value), right, atol=1e-6)
