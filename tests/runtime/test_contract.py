"""Rows of the contract's table whose behaviour no other test shows."""

import logging
import os
import warnings
from pathlib import Path

import pytest
import torch
from crosstrain import Accelerator, load_checkpoint_in_model
from crosstrain.utils import GradientAccumulationPlugin, ProjectConfiguration, set_seed
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import on_ranks, run_ranks


def one() -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


# -- prepare ----------------------------------------------------------------------------------------


def test_device_placement_decides_what_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerator = Accelerator(cpu=True, device_placement=False)
    moved: list[nn.Module] = []
    monkeypatch.setattr(accelerator._comm, "move", moved.append)
    stays, goes, follows = one(), one(), one()
    accelerator.prepare(stays)
    accelerator.prepare(goes, nn.Flatten(), device_placement=[True, False])
    assert moved == [goes]
    Accelerator(cpu=True, device_placement=True).prepare(follows)
    assert moved == [goes, follows]
    with pytest.raises(ValueError, match="device_placement has 1 entries for 2 objects"):
        accelerator.prepare(one(), one(), device_placement=[True])


# -- the step ---------------------------------------------------------------------------------------


def test_backward_hands_its_arguments_on() -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(one())
    loss = model(torch.full((1, 1), 2.0)).sum()
    accelerator.backward(loss, retain_graph=True)
    accelerator.backward(loss)
    assert model.weight.grad.item() == 4.0
    accelerator.backward(model(torch.ones(2, 1)), gradient=torch.full((2, 1), 10.0))
    assert model.weight.grad.item() == 24.0


def _cycle(divided: bool, rows: int) -> list[str]:
    accelerator = Accelerator(cpu=True)
    model = one()
    optimizer = SGD(model.parameters(), 0.1)
    loader = DataLoader(TensorDataset(torch.ones(rows, 1)), batch_size=2)
    steps = 4 * len(loader) // (2 if divided else 1)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1.0, total_steps=steps)
    keys = set(scheduler.state_dict())
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(4):
            for (x,) in loader:
                accelerator.backward(model(x).mean())
                optimizer.step()
                scheduler.step()
    assert set(scheduler.state_dict()) == keys
    return [f"{Path(one.filename).name}: {one.message}" for one in said if one.category is UserWarning]


def test_a_schedule_that_was_divided_by_the_processes_is_noticed() -> None:
    """accelerate's users find a rate that fell too fast (accelerate#2926 and others); accelerate says nothing."""
    assert run_ranks(_cycle, 2, False, 16) == [[], []]
    assert run_ranks(_cycle, 2, False, 18) == [[], []]  # uneven: two steps too many in 20
    for said in run_ranks(_cycle, 2, True, 16):
        assert len(said) == 1
        assert said[0].startswith(
            "test_contract.py: the OneCycleLR has made all of its 16 steps, and the training continues: each"
        )


def test_a_window_may_go_on_over_the_end_of_a_loader() -> None:
    synced = {}
    for with_loader in (True, False):
        plugin = GradientAccumulationPlugin(num_steps=2, sync_with_dataloader=with_loader)
        accelerator = Accelerator(cpu=True, gradient_accumulation_plugin=plugin)
        model, loader = accelerator.prepare(one(), DataLoader(torch.ones(3, 1)))
        synced[with_loader] = []
        for _ in range(2):
            for _ in loader:
                with accelerator.accumulate(model):
                    synced[with_loader].append(accelerator.sync_gradients)
        accelerator.state._reset_state()
    assert synced[True] == [False, True, True] * 2
    assert synced[False] == [False, True] * 3


# -- two processes ----------------------------------------------------------------------------------


@on_ranks(2)
def test_members_that_look_at_the_processes() -> None:
    """A number of the stream that `rng_types` keeps common is alike, one behind `set_seed(device_specific=True)` is not."""
    accelerator = Accelerator(cpu=True, rng_types=["generator", "torch"])
    rank = accelerator.process_index
    model = accelerator.prepare_model(one(), evaluation_mode=True)
    accelerator.backward(model(torch.full((1, 1), 1.0 + rank)).sum())
    assert model.weight.grad.item() == 1.0 + rank, "evaluation mode does not average"
    torch.manual_seed(rank)
    loader = accelerator.prepare(DataLoader(TensorDataset(torch.arange(5)), batch_size=2))
    assert (loader.total_batch_size, loader.total_dataset_length, len(loader)) == (4, 5, 2)
    names = []
    for (rows,) in loader:
        names += accelerator.gather_for_metrics([f"row {int(row)}" for row in rows], use_gather_object=True)
    assert names == [f"row {i}" for i in range(5)]
    common = torch.rand(()).item()
    assert (accelerator.is_main_process, accelerator.is_local_main_process) == (rank == 0, rank == 0)
    assert (accelerator.is_last_process, accelerator.local_process_index) == (rank == 1, rank)
    assert accelerator.use_distributed
    for decorate, who in (
        (accelerator.on_main_process, 0),
        (accelerator.on_local_main_process, 0),
        (accelerator.on_last_process, 1),
        (lambda f: accelerator.on_local_process(f, local_process_index=1), 1),
        (lambda f: accelerator.on_process(f, process_index=0), 0),
    ):
        assert decorate(lambda: True)() is (True if rank == who else None)
    set_seed(7, device_specific=True)
    alike, apart = accelerator.gather(torch.tensor([[common, torch.rand(()).item()]])).T.tolist()
    assert alike[0] == alike[1] and apart[0] != apart[1]


@on_ranks(2, env={"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
def test_each_machine_keeps_files_of_its_own(tmp_path: Path) -> None:
    """Two machines of one process each, as far as anybody can tell."""
    accelerator = Accelerator(cpu=True, project_config=ProjectConfiguration(save_on_each_node=True))
    mine = tmp_path / str(accelerator.process_index)
    mine.mkdir()
    os.chdir(mine)
    accelerator.save({"x": torch.ones(1)}, "one.pt")
    accelerator.save_model(one(), "weights")
    assert torch.load(mine / "one.pt", weights_only=True) == {"x": torch.ones(1)}
    assert (mine / "weights" / "model.safetensors").exists()


# -- Decisions of the contract that have no file of their own: files, devices, noise, tied weights, the line at prepar


class Tied(nn.Module):
    """The head's weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words(x))


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
