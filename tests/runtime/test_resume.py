"""A training stopped at any step, and continued by new processes, ends with the same weights bit for bit.

The exception, which `load_state` documents: numbers that loader workers draw in the rest of an epoch that was
interrupted in its middle. The processes draw theirs (dropout, augmentation without workers) exactly. Sharded
models stop where their gradients are reduced: inside an accumulation window `save_state` warns.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tests.support.ranks import run_ranks

ROWS = 22
EPOCHS = 2
WINDOW = (
    3  # micro-batches: 4 in an epoch with two processes, so windows end inside and at the end of an epoch
)


class Rows(Dataset[Tensor]):
    """Row `index`, augmented with random noise or as it is."""

    def __init__(self, noise: float) -> None:
        self.noise = noise

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((4,), index / ROWS) + torch.randn(4) * self.noise


class Counters:
    """How far a script has come, by its own count."""

    def __init__(self) -> None:
        self.epoch = self.step = 0

    def state_dict(self) -> dict[str, int]:
        return dict(vars(self))

    def load_state_dict(self, state: dict[str, int]) -> None:
        vars(self).update(state)


def train(kind: str, workers: int, noise: float, load: str | None, folder: str | None) -> str:
    """Train two epochs, from a checkpoint or anew; save after every step and epoch into `folder`."""
    plugin = FullyShardedDataParallelPlugin(state_dict_type=kind) if kind != "DDP" else None
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=WINDOW, fsdp_plugin=plugin)
    torch.manual_seed(0 if load is None else 1234)  # nothing of the new processes' own seeds may matter
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=50)
    # The ranks come from a fork server, and would start their workers by one: seconds for each.
    start = "fork" if workers else None
    loader = DataLoader(
        Rows(noise), batch_size=3, shuffle=True, num_workers=workers, multiprocessing_context=start
    )
    model, optimizer, scheduler, loader = accelerator.prepare(model, optimizer, scheduler, loader)
    counters = Counters()
    accelerator.register_for_checkpointing(counters)
    if load is not None:
        accelerator.load_state(load)
    elif folder is not None:
        accelerator.save_state(f"{folder}/start")
    while counters.epoch < EPOCHS:
        for batch in loader:
            with accelerator.accumulate(model):
                accelerator.backward(model(batch).square().mean())
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            counters.step += 1
            if folder is not None and (plugin is None or accelerator.sync_gradients):
                accelerator.save_state(f"{folder}/step{counters.step}")
        counters.epoch += 1
        if folder is not None:
            accelerator.save_state(f"{folder}/epoch{counters.epoch}")
    return digest(accelerator.get_state_dict(model))


def digest(state: dict[str, Any]) -> str:
    sums = hashlib.sha256()
    for name, value in sorted(state.items()):
        sums.update(name.encode() + value.numpy().tobytes())
    return sums.hexdigest()


MATRIX = [
    pytest.param(world, kind, workers, noise, id=f"{world}-{kind}-{workers} workers")
    for world, kind in [(1, "DDP"), (2, "DDP"), (2, "SHARDED_STATE_DICT"), (2, "FULL_STATE_DICT")]
    for workers, noise in [(0, 0.1), (2, 0.0)]
]


@pytest.mark.parametrize(("world", "kind", "workers", "noise"), MATRIX)
def test_every_stop_resumes_exactly(
    world: int, kind: str, workers: int, noise: float, tmp_path: Path
) -> None:
    options = (kind, workers, noise)
    whole = run_ranks(train, world, *options, None, None, forks=workers > 0)
    assert (
        run_ranks(train, world, *options, None, str(tmp_path), forks=workers > 0) == whole
    )  # saving changes nothing
    stops = sorted(path.name for path in tmp_path.iterdir())
    epoch = -(-ROWS // (3 * world))
    steps = [step for step in range(1, EPOCHS * epoch + 1) if kind == "DDP" or ends_window(step, epoch)]
    assert stops == sorted(["start", "epoch1", "epoch2", *(f"step{step}" for step in steps)])
    resumed = {
        stop: run_ranks(train, world, *options, str(tmp_path / stop), None, forks=workers > 0)
        for stop in stops
    }
    assert resumed == dict.fromkeys(stops, whole)


def ends_window(step: int, epoch: int) -> bool:
    """Whether gradients are reduced at this micro-batch: every third of an epoch, and its last."""
    within = (step - 1) % epoch + 1
    return within % WINDOW == 0 or within == epoch


@pytest.mark.parametrize("world", [1, 2])
def test_augmentation_in_workers_is_exact_at_an_epochs_end(world: int, tmp_path: Path) -> None:
    whole = run_ranks(train, world, "DDP", 2, 0.1, None, str(tmp_path), forks=True)
    assert run_ranks(train, world, "DDP", 2, 0.1, str(tmp_path / "epoch1"), None, forks=True) == whole


def _by_the_guide(load: str | None, folder: str | None, own_generator: bool, named: str) -> str:
    """As Hugging Face's guide resumes: from the step in the name of the checkpoint, by arithmetic."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0 if load is None else 1234)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(5) if own_generator else None
    loader = DataLoader(Rows(0.1), batch_size=3, shuffle=True, generator=generator)
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
    return digest(accelerator.get_state_dict(model))


@pytest.mark.parametrize("named", ["skip", "set_epoch"])
@pytest.mark.parametrize("own_generator", [False, True])
@pytest.mark.parametrize("world", [1, 2])
def test_every_step_resumes_exactly_by_arithmetic(
    world: int, own_generator: bool, named: str, tmp_path: Path
) -> None:
    """Also behind the last batch of an epoch, where the arithmetic says: the next epoch, from its start."""
    whole = run_ranks(_by_the_guide, world, None, str(tmp_path), own_generator, named)
    epoch = -(-ROWS // (3 * world))
    for step in (1, epoch - 1, epoch, epoch + 1, 2 * epoch):
        load = str(tmp_path / f"step_{step}")
        assert run_ranks(_by_the_guide, world, load, None, own_generator, named) == whole, step


def _behind_the_end(folder: str) -> list[list[int]]:
    accelerator = Accelerator(cpu=True)
    loader = accelerator.prepare(DataLoader(torch.arange(4), batch_size=2))
    for batch in loader:
        if 3 in batch:
            accelerator.save_state(folder)
    again = accelerator.prepare(DataLoader(torch.arange(4), batch_size=2))
    accelerator._dataloaders[:] = [again]
    accelerator.load_state(folder)
    return [[int(row) for batch in again for row in batch] for _ in range(2)]


def test_an_empty_rest_of_an_epoch_is_said(tmp_path: Path) -> None:
    with pytest.warns(
        UserWarning, match=r"after the last batch of epoch 0: .* loader.set_epoch\(1\), or skip_first"
    ):
        assert _behind_the_end(str(tmp_path / "state")) == [[], [0, 1, 2, 3]]


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
