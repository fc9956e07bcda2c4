"""Ranks that part ways on a draw of their own: an error on all of them, with both lines, the parameters and the remedy."""

import random
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from crosstrain.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import errors_of

ROWS = 300  # batches of one epoch on each of two ranks: 150


class _Branches(nn.ModuleList):
    """Uses one of its layers, by a coin."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(2, 1) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return random.choice(list(self))(x)


def _train(how: str, chance: float, common: bool = False) -> None:
    accelerator = Accelerator(cpu=True)
    set_seed(1)
    models: list[Any] = [nn.Linear(2, 3), nn.Linear(2, 1)]
    if how == "a branch of the model":
        models[1] = _Branches()
    if how == "two optimizers of one model":
        models = [nn.Sequential(*models[:1], nn.Linear(3, 1))] * 2
        parts = list(models[0])
    else:
        parts = models
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.01) for part in parts]
    loader = DataLoader(TensorDataset(torch.randn(ROWS, 2)), batch_size=1)
    loader = accelerator.prepare(*dict.fromkeys(models), *optimizers, loader)[-1]
    first, second = optimizers

    def learn(number: int, x: torch.Tensor) -> None:
        accelerator.backward(models[number](x).square().mean())

    def coin() -> bool:
        if common:
            with accelerator.common_draws():
                return random.random() < chance
        return random.random() < chance

    for _ in range(4):
        for (x,) in loader:
            if how == "two models":
                if coin():
                    learn(1, x)
                    second.step()
                else:
                    learn(0, x)
                    first.step()
            elif how == "two optimizers of one model":
                learn(0, x)
                if coin():
                    second.step()
                else:
                    first.step()
            elif how == "a branch of the model":
                for number, optimizer in enumerate(optimizers):
                    learn(number, x)
                    optimizer.step()
            elif how == "a skipped step":
                if coin():
                    continue
                learn(0, x)
                first.step()
            elif how == "two backwards":
                learn(0, x)
                if coin():
                    learn(0, x)
                first.step()
            first.zero_grad()
            second.zero_grad()


HOWS = ["two models", "two optimizers of one model", "a skipped step", "two backwards"]


@pytest.mark.parametrize("chance", [0.5, 0.02])
@pytest.mark.parametrize("how", HOWS)
def test_parted_ranks_are_an_error_on_all_of_them(how: str, chance: float) -> None:
    for world in (2, 3):
        for message in errors_of(_train, world, how, chance):
            assert "the ranks have parted" in message, message
            assert "with accelerator.common_draws():" in message
            assert message.count("test_parted.py:") >= world
            assert "weight" in message


def test_ranks_that_use_other_parts_of_a_model_have_not_parted() -> None:
    assert errors_of(_train, 2, "a branch of the model", 0.5) == ["no error"] * 2


@pytest.mark.parametrize("how", HOWS)
def test_with_common_draws_they_stay_together(how: str) -> None:
    assert errors_of(_train, 2, how, 0.5, True) == ["no error"] * 2
