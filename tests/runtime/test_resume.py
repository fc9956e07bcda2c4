"""A training that is continued by new processes, as Hugging Face's guide does it, and what a load says of its loaders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from tests.runtime.loaders import plain
from tests.support.ranks import run_ranks

ROWS = 22
EPOCHS = 2


class Rows(Dataset[Tensor]):
    """Rows that are augmented with random noise."""

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((4,), index / ROWS) + torch.randn(4) * 0.1


def _by_the_guide(load: str | None, folder: str | None, own_generator: bool, named: str) -> Any:
    """As Hugging Face's guide resumes: from the step in the name of the checkpoint, by arithmetic."""
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0 if load is None else 1234)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.3), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(5) if own_generator else None
    loader = DataLoader(Rows(), batch_size=3, shuffle=True, generator=generator)
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
