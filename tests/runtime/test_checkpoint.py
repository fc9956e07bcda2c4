"""A training that was interrupted goes on as if it had not been; every checkpoint is whole."""

import json
import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, ProjectConfiguration, skip_first_batches
from crosstrain.checkpoint.manifests import MANIFEST, beside
from torch import nn
from torch.utils.data import DataLoader

from tests.runtime.checkpoints import Count
from tests.runtime.loaders import Noisy
from tests.support.ranks import on_ranks, run_ranks


class Training:
    """A script with dropout, data noise, a scheduler, accumulation and momentum."""

    def __init__(self, options: dict[str, Any], workers: int = 0) -> None:
        self.accelerator = Accelerator(cpu=True, **options)
        net = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.Linear(8, 1))
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.05)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=200)
        # The ranks come from a fork server, and would start their workers by one: seconds for each.
        start = "fork" if workers else None
        loader = DataLoader(Noisy(22), 2, shuffle=True, num_workers=workers, multiprocessing_context=start)
        self.net, self.optimizer, self.scheduler, self.loader = self.accelerator.prepare(
            net, optimizer, scheduler, loader
        )
        self.counter = Count()
        self.accelerator.register_for_checkpointing(self.counter)
        self.seen: list[Any] = []

    def epoch(self, loader: Any = None, save_at: int | None = None, where: str = "") -> None:
        for index, x in enumerate(self.loader if loader is None else loader):
            with self.accelerator.accumulate(self.net):
                self.optimizer.zero_grad()  # inside a window it clears nothing, after a resume either
                loss = (self.net(x) - 1).square().mean()
                self.accelerator.backward(loss)
                self.optimizer.step()
                self.scheduler.step()
            self.counter.value += 1
            self.seen.append((x.tolist(), loss.item(), self.optimizer.param_groups[0]["lr"], random.random()))
            if index == save_at:
                self.accelerator.save_state(where)
                self.seen.clear()

    def result(self) -> Any:
        weights = {name: value.tolist() for name, value in self.net.state_dict().items()}
        return self.seen, weights, self.counter.value, self.accelerator.step


def _uninterrupted(options: dict[str, Any], where: str, save_at: int | None, workers: int = 0) -> Any:
    """The last epochs of a run that saves; with `where` empty it does not."""
    torch.manual_seed(0)
    random.seed(0)
    training = Training(options, workers)
    training.epoch()
    training.epoch(save_at=save_at, where=where)
    if save_at is None:
        if where:
            training.accelerator.save_state(where)
        training.seen.clear()
    training.epoch()
    return training.result()


def _resumed(
    options: dict[str, Any], where: str, save_at: int | None, style: str = "plain", workers: int = 0
) -> Any:
    torch.manual_seed(99)  # nothing of the new process's own seeds may matter
    training = Training(options, workers)
    training.accelerator.load_state(where)
    if save_at is not None:
        skips = style == "skip_first_batches"
        training.epoch(skip_first_batches(training.loader, save_at + 1) if skips else None)
    training.epoch()
    return training.result()


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("save_at", [None, 1, 3], ids=["epoch end", "inside a window", "between windows"])
@pytest.mark.parametrize("options", [{}, {"use_seedable_sampler": True}], ids=["own", "seedable"])
def test_resume_is_exact(world: int, save_at: int | None, options: dict[str, Any], tmp_path: Path) -> None:
    """accelerate: 0 of 4 with two processes, because neither the loader's epoch nor its generator is saved."""
    options = options | {"gradient_accumulation_steps": 2}
    if save_at == 1:  # with windows of 3 batches, batch 1 is in the middle of one
        options["gradient_accumulation_steps"] = 3
    where = str(tmp_path / "state")
    expected = run_ranks(_uninterrupted, world, options, where, save_at)
    for style in ("plain", "skip_first_batches") if save_at is not None else ("plain",):
        assert run_ranks(_resumed, world, options, where, save_at, style) == expected


@pytest.mark.parametrize("world", [1, 2])
def test_augmentation_in_workers_is_exact_at_an_epochs_end(world: int, tmp_path: Path) -> None:
    """In the rest of an epoch that was interrupted in its middle, workers draw other numbers: `load_state` says so."""
    where = str(tmp_path / "state")
    expected = run_ranks(_uninterrupted, world, {}, where, None, 2, forks=True)
    assert run_ranks(_uninterrupted, world, {}, "", None, 2, forks=True) == expected, "saving changes it"
    assert run_ranks(_resumed, world, {}, where, None, "plain", 2, forks=True) == expected


@on_ranks(1, 2)
def test_numbering_goes_on_after_a_resume(tmp_path: Path) -> None:
    """accelerate starts at 0 again: saves 4 and 5 are removed as the oldest, and checkpoint_2 is loaded."""
    folder = str(tmp_path / os.environ["WORLD_SIZE"])
    config = ProjectConfiguration(folder, automatic_checkpoint_naming=True, total_limit=2)
    accelerator = Accelerator(cpu=True, project_config=config)
    model = nn.Linear(1, 1)
    model = accelerator.prepare(model)

    def save(value: float) -> None:
        with torch.no_grad():
            model.weight.fill_(value)
        accelerator.save_state()

    for value in range(4):
        save(value)
    accelerator.load_state()
    assert model.weight.item() == 3.0
    config.iteration = 0  # what a new process starts with
    accelerator.load_state()
    save(4)
    save(5)
    accelerator.load_state()
    assert model.weight.item() == 5.0
    names = sorted(path.name for path in Path(folder, "checkpoints").iterdir())
    assert names == ["checkpoint_4", "checkpoint_5"]


def test_saving_again_replaces_the_checkpoint_and_keeps_other_files(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(1, 1))
    target = tmp_path / "out"
    target.mkdir()
    (target / "log.txt").write_text("a script's own file")
    for value in (1.0, 2.0):
        nn.init.constant_(model.weight, value)
        accelerator.save_state(target)
    assert (target / "log.txt").read_text() == "a script's own file"
    nn.init.zeros_(model.weight)
    accelerator.load_state(target)
    assert model.weight.item() == 2.0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def _killed_while_saving(where: str, point: str) -> None:
    from crosstrain.checkpoint import manifests

    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(1, 1))
    nn.init.constant_(model.weight, 1.0)
    accelerator.save_state(where)
    nn.init.constant_(model.weight, 2.0)

    def die(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    if point == "while writing":
        accelerator.register_save_state_pre_hook(die)
    elif point == "before the rename":
        manifests.sync_to_disk = die
    else:  # between the two renames
        rename = Path.rename

        def one_only(self: Path, other: Path) -> Path:
            if self.name.endswith(".new"):
                die()
            return rename(self, other)

        Path.rename = one_only  # type: ignore[method-assign]
    accelerator.save_state(where)


@pytest.mark.parametrize("point", ["while writing", "before the rename", "between the renames"])
def test_a_kill_while_saving_leaves_the_former_checkpoint(point: str, tmp_path: Path) -> None:
    where = tmp_path / "state"
    with pytest.raises(RuntimeError, match="exit code -9"):
        run_ranks(_killed_while_saving, 1, str(where), point)
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(1, 1))
    accelerator.load_state(where)
    assert model.weight.item() == 1.0
    accelerator.save_state(where)
    assert not beside(where).exists()


def test_save_and_load_need_a_directory(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        accelerator.load_state(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="save_state needs a directory"):
        accelerator.save_state()


@on_ranks(2)
def test_no_checkpoint_is_the_same_error_on_every_rank(tmp_path: Path) -> None:
    """A script that starts anew where there is nothing to continue must do so on all ranks."""
    config = ProjectConfiguration(str(tmp_path), automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=config)
    with pytest.raises(FileNotFoundError):
        accelerator.load_state()


def test_count_of_registered_objects_must_match(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    accelerator.save_state(tmp_path / "state")
    accelerator.register_for_checkpointing(Count())
    with pytest.raises(RuntimeError, match="holds 0 registered objects, and 1 are registered now"):
        accelerator.load_state(tmp_path / "state")


def test_hooks_may_take_over_a_model(tmp_path: Path) -> None:
    """diffusers' LoRA scripts write a model's weights themselves, and pop it from the lists."""
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(1, 1))

    def save(models: list[nn.Module], weights: list[dict[str, Any]], folder: str) -> None:
        assert models == [model]
        torch.save(weights.pop()["weight"], Path(folder) / "mine.pt")

    def load(models: list[nn.Module], folder: str) -> None:
        models.pop().weight.data.copy_(torch.load(Path(folder) / "mine.pt"))

    handle = accelerator.register_save_state_pre_hook(save)
    accelerator.register_load_state_pre_hook(load)
    accelerator.save_state(tmp_path / "state")
    files = {path.name for path in (tmp_path / "state").iterdir()}
    assert files == {"mine.pt", "random_states_0.pkl", MANIFEST}
    value = model.weight.item()
    nn.init.zeros_(model.weight)
    accelerator.load_state(tmp_path / "state")
    assert model.weight.item() == value
    handle.remove()
    accelerator.save_state(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").exists()


def _saved_by_two(where: str) -> None:
    torch.manual_seed(5)
    training = Training({})
    training.epoch()
    training.accelerator.save_state(where)


def test_another_number_of_processes_loads_with_a_warning(tmp_path: Path) -> None:
    where = tmp_path / "state"
    run_ranks(_saved_by_two, 2, str(where))
    assert json.loads((where / MANIFEST).read_text())["world"] == 2
    training = Training({})
    with pytest.warns(UserWarning, match="saved by 2 processes and is loaded by 1"):
        training.accelerator.load_state(where)
    assert training.counter.value == 6


@on_ranks(2)
def test_an_error_on_one_rank_is_an_error_on_all(tmp_path: Path) -> None:
    where = tmp_path / "state"
    accelerator = Accelerator(cpu=True)

    def fail(*_: Any) -> None:
        if accelerator.process_index == 1:
            raise OSError("disk full")

    accelerator.register_save_state_pre_hook(fail)
    said = "the checkpoint failed on rank 1: OSError: " if accelerator.is_main_process else ""
    with pytest.raises((OSError, RuntimeError), match=f"^{said}disk full$"):
        accelerator.save_state(where)
    assert not where.exists()
