"""Checkpoints in Accelerate's layout load: its file names, its keys, its numpy arrays in the random states."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from crosstrain import Accelerator
from crosstrain.utils import ProjectConfiguration
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import run_ranks


class Count:
    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "more": torch.arange(2)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


class Training:
    """Two models with optimizers of two kinds, a scheduler, a loader and an object of the script's own."""

    def __init__(self) -> None:
        torch.manual_seed(3)
        self.models = [nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1)), nn.Linear(4, 1)]
        self.optimizers: list[torch.optim.Optimizer] = [
            torch.optim.AdamW(self.models[0].parameters(), lr=0.01),
            torch.optim.SGD(self.models[1].parameters(), lr=0.1, momentum=0.9),
        ]
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizers[0], 2)
        self.loader = DataLoader(TensorDataset(torch.randn(8, 4)), batch_size=2)
        self.count = Count()

    def steps(self, number: int) -> None:
        for _ in range(number):
            self.count.value += 1
            x = torch.rand(3, 4)
            for model, optimizer in zip(self.models, self.optimizers, strict=True):
                optimizer.zero_grad()
                model(x).square().mean().backward()
                optimizer.step()
            self.scheduler.step()

    def weights(self) -> list[torch.Tensor]:
        return [param.detach().clone() for model in self.models for param in model.parameters()]


def write(training: Training, folder: Path, safe: bool, ranks: int = 1) -> None:
    """What accelerate 1.15's save_state leaves in its directory."""
    folder.mkdir(parents=True)
    for index, model in enumerate(training.models):
        number = f"_{index}" if index else ""
        if safe:
            save_file(model.state_dict(), folder / f"model{number}.safetensors", metadata={"format": "pt"})
        else:
            torch.save(model.state_dict(), folder / f"pytorch_model{number}.bin")
        torch.save(training.optimizers[index].state_dict(), folder / f"optimizer{number}.bin")
    torch.save(training.scheduler.state_dict(), folder / "scheduler.bin")
    torch.save(training.count.state_dict(), folder / "custom_checkpoint_0.pkl")
    for rank in range(ranks):
        states = {
            "step": 0,
            "random_state": random.getstate(),
            "numpy_random_seed": np.random.get_state(),
            "torch_manual_seed": torch.get_rng_state(),
        }
        torch.save(states, folder / f"random_states_{rank}.pkl")


def _continue(folder: str) -> tuple[list[torch.Tensor], float, int, int, list[float]]:
    accelerator = Accelerator(
        cpu=True, project_config=ProjectConfiguration(folder, automatic_checkpoint_naming=True)
    )
    training = Training()
    every = [*training.models, *training.optimizers, training.scheduler, training.loader]
    accelerator.prepare(*every)
    accelerator.register_for_checkpointing(training.count)
    accelerator.step_scheduler_with_optimizer = False
    with pytest.warns(
        UserWarning, match=r"loader.bin is not in the checkpoint: the order of the loader over"
    ):
        accelerator.load_state()
    drawn = [float(np.random.rand()), random.random()]
    if accelerator.num_processes == 1:
        training.steps(3)
    rate = training.optimizers[0].param_groups[0]["lr"]
    return training.weights(), rate, training.count.value, accelerator.save_iteration, drawn


@pytest.mark.parametrize("safe", [True, False])
def test_training_goes_on_exactly_where_accelerate_saved(tmp_path: Path, safe: bool) -> None:
    training = Training()
    training.steps(3)
    write(Training(), tmp_path / "checkpoints" / "checkpoint_4", safe)
    write(training, tmp_path / "checkpoints" / "checkpoint_12", safe)
    drawn = [float(np.random.rand()), random.random()]
    training.steps(3)
    weights, rate, count, iteration, again = _continue(str(tmp_path))
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(weights, training.weights(), strict=True))
    assert rate == training.optimizers[0].param_groups[0]["lr"]
    assert (count, iteration) == (6, 13)
    assert again == drawn


def test_two_processes_load_it(tmp_path: Path) -> None:
    training = Training()
    training.steps(3)
    write(training, tmp_path / "checkpoints" / "checkpoint_0", safe=True, ranks=2)
    drawn = [float(np.random.rand()), random.random()]
    for weights, _, count, iteration, again in run_ranks(_continue, 2, str(tmp_path)):
        assert all(torch.equal(a, b) for a, b in zip(weights, training.weights(), strict=True))
        assert (count, iteration) == (3, 1)
        assert again == drawn
