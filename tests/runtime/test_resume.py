"""A training that is continued by new processes, as Hugging Face's guide does it, and what a load says of its loaders."""

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

from tests.runtime.checkpoints import Count
from tests.runtime.loaders import Noisy, plain
from tests.support.ranks import run_ranks

ROWS = 22
EPOCHS = 2


def _by_the_guide(load: str | None, folder: str | None, own_generator: bool, named: str) -> Any:
    """As Hugging Face's guide resumes: from the step in the name of the checkpoint, by arithmetic."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0 if load is None else 1234)
    model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(5) if own_generator else None
    loader = DataLoader(Noisy(ROWS), batch_size=3, shuffle=True, generator=generator)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    epoch, skip = 0, 0
    if load is not None:
        accelerator.load_state(load)
        step = int(Path(load).name.removeprefix("step_"))
        epoch, skip = divmod(step, len(loader))
    step = epoch * len(loader) + skip
    for number in range(epoch, EPOCHS + 1):
        if named == "set_epoch":
            loader.set_epoch(number)
        resumed = load is not None and number == epoch and (named == "skip" or skip > 0)
        for batch in accelerator.skip_first_batches(loader, skip) if resumed else loader:
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if folder is not None:
                accelerator.save_state(f"{folder}/step_{step}")
    return plain(accelerator.get_state_dict(model))


@pytest.mark.parametrize("named", ["skip", "set_epoch"])
@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("world", [1, 2])
def test_every_step_resumes_exactly(world: int, own_generator: bool, named: str, tmp_path: Path) -> None:
    """Also behind the last batch of an epoch, where the arithmetic says: the next epoch, from its start."""
    whole = run_ranks(_by_the_guide, world, None, str(tmp_path), own_generator, named)
    epoch = -(-ROWS // (3 * world))
    for step in (1, epoch - 1, epoch, epoch + 1, 2 * epoch):
        load = str(tmp_path / f"step_{step}")
        assert run_ranks(_by_the_guide, world, load, None, own_generator, named) == whole, step


def test_a_load_says_where_each_loader_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Scripts for libraries that start the epoch anew skip by hand what is skipped already."""
    monkeypatch.delenv("CROSSTRAIN_QUIET", raising=False)
    caplog.set_level("INFO", "crosstrain")
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(torch.arange(6), batch_size=2))
    accelerator.save_state(tmp_path / "start")
    next(iter(loader))
    walk = iter(loader)
    next(walk), next(walk)
    accelerator.save_state(tmp_path / "two")
    walk.close()
    accelerator.load_state(tmp_path / "start")
    accelerator.load_state(tmp_path / "two")
    (said,) = (line for line in caplog.messages if "continues by itself" in line)
    assert said.startswith("the loader over Tensor continues by itself after batch 2 of epoch 0;")


# -- Checkpoints in Accelerate's layout load: its file names, its keys, its numpy arrays in the random states ---


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
    config = ProjectConfiguration(folder, automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=config)
    training = Training()
    every = [*training.models, *training.optimizers, training.scheduler, training.loader]
    accelerator.prepare(*every)
    accelerator.register_for_checkpointing(training.count)
    accelerator.step_scheduler_with_optimizer = False
    with pytest.warns(UserWarning, match=r"loader.bin is not in the checkpoint: the order of the loader"):
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
