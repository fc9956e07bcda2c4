"""Decisions of the contract that have no file of their own: files, devices, noise, tied weights, the line at prepare."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from crosstrain import Accelerator, load_checkpoint_in_model
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import run_ranks


class Tied(nn.Module):
    """The head's weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x))


def _files(folder: str) -> None:
    accelerator = Accelerator(cpu=True)
    model = Tied()
    model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    accelerator.backward(model(torch.arange(7)).square().mean())
    optimizer.step()
    if accelerator.is_main_process:  # nothing here communicates
        for suffix in (".pt", ".bin", ".safetensors"):
            accelerator.save_model(model, Path(folder) / f"model{suffix}")
        accelerator.save(accelerator.get_state_dict(model), Path(folder) / "state.pt")
    accelerator.save_model(model, Path(folder) / "shards")
    accelerator.wait_for_everyone()
    assert str(accelerator.device) == "cpu"
    plain = torch.load(Path(folder) / "model.pt", map_location=accelerator.device)
    assert sorted(plain) == ["head.weight", "words.weight"]
    fresh = Tied()
    fresh.load_state_dict(plain)
    assert torch.equal(fresh.head.weight, model.words.weight)
    assert accelerator.unwrap_model(model) is model


def test_files_of_weights_are_written_by_the_main_process_alone(tmp_path: Path) -> None:
    """accelerate: keys begin with ``module.`` where the script forgets to unwrap, `save_model` writes a directory,
    and ``map_location=accelerator.device`` raises because the device of the second process is ``cpu:1``."""
    run_ranks(_files, 2, str(tmp_path))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["model.bin", "model.pt", "model.safetensors", "shards", "state.pt"]
    assert [path.name for path in (tmp_path / "shards").iterdir()] == ["model.safetensors"]


def test_tied_weights_survive_prepare_and_a_checkpoint(tmp_path: Path) -> None:
    """Plain safetensors raises on tied weights, and a strict load misses the name that was dropped."""
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Tied())
    assert model.head.weight is model.words.weight
    accelerator.save_state(tmp_path / "state")
    before = model.words.weight.detach().clone()
    nn.init.zeros_(model.words.weight)
    accelerator.load_state(tmp_path / "state")
    assert torch.equal(model.head.weight, before)
    assert model.head.weight is model.words.weight


@pytest.mark.parametrize("kept", ["words.weight", "head.weight"])
def test_tied_weights_are_found_in_files_that_name_them_once(kept: str, tmp_path: Path) -> None:
    """accelerate and transformers write one of the names, and not which other it stands for."""
    weight = torch.full_like(Tied().words.weight, 0.5)
    save_file({kept: weight}, tmp_path / "model.safetensors", metadata={"format": "pt"})
    for load in ("load_checkpoint_in_model", "load_state"):
        accelerator = Accelerator(cpu=True)
        model = accelerator.prepare(Tied())
        if load == "load_state":
            with pytest.warns(UserWarning, match="random"):
                accelerator.load_state(tmp_path)
        else:
            load_checkpoint_in_model(model, tmp_path)
        assert torch.equal(model.words.weight, weight)
        assert model.head.weight is model.words.weight
        accelerator.free_memory()


def _line() -> str:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.zeros(64, 1)), batch_size=4))
    accelerator.prepare(nn.Linear(1, 1))
    assert len(loader) == 8
    return accelerator._announcement.describe()


def test_one_line_tells_what_nobody_can_remember(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = "global batch = 4 x 2 ranks x 2 accumulated = 16; 4 steps per epoch; gloo on cpu; precision no"
    assert run_ranks(_line, 2) == [expected] * 2
    monkeypatch.delenv("CROSSTRAIN_QUIET", raising=False)
    with caplog.at_level(logging.INFO, logger="crosstrain"):
        accelerator = Accelerator(cpu=True)
        accelerator.prepare(DataLoader(torch.zeros(8, 1), batch_size=4), nn.Linear(1, 1))
        accelerator.prepare(nn.Linear(1, 1))
    assert [r.message for r in caplog.records if "global batch" in r.message] == [
        "global batch = 4; 2 steps per epoch; one process on cpu; precision no"
    ]
