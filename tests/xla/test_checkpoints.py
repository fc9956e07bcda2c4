"""Checkpoints from XLA: plain files that any torch reads, and an exact resume."""

from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from torch import Tensor, nn

from tests.xla.support import difference, loader, model, on_xla, optimizer, plain_training


def test_weights_are_written_for_plain_torch_with_ties_by_name(tmp_path: Path) -> None:
    on_xla(write, tmp_path)
    _, wanted = plain_training("tied", "sgd", 8, 8)
    state = torch.load(tmp_path / "weights.pt", weights_only=True)
    assert difference(state, wanted) < 1e-5
    assert state["out.weight"].data_ptr() == state["embed.weight"].data_ptr()
    from safetensors.torch import load_file

    assert set(wanted) - set(load_file(tmp_path / "weights.safetensors")) == {"out.weight"}
    whole = torch.load(tmp_path / "all.pt", weights_only=True)
    assert difference(whole["model"], wanted) < 1e-5
    assert whole["optimizer"]["state"][0]["momentum_buffer"].device.type == "cpu"
    module = model("tied")
    module.load_state_dict(state)


def write(folder: Path) -> None:
    accelerator = Accelerator()
    module = model("tied")
    optim = optimizer("sgd", module)
    module, optim, batches = accelerator.prepare(module, optim, loader("tied", 8, 2))
    for x, y in batches:
        accelerator.backward(F.cross_entropy(module(x), y))
        optim.step()
    accelerator.save_model(module, folder / "weights.pt")
    accelerator.save_model(module, folder / "weights.safetensors")
    both = {"model": module.state_dict(), "optimizer": optim.state_dict(), "epoch": 3}
    accelerator.save(both, folder / "all.pt")


class Noisy(nn.Module):
    """Dropout: resuming is exact only if the device's random stream is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(F.dropout(x, 0.5, self.training))


def test_a_resumed_training_is_the_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole = on_xla(run, tmp_path / "state", None)
    resumed = on_xla(run, None, tmp_path / "state")
    assert resumed["losses"] == whole["losses"][5:]
    assert all(torch.equal(resumed["weights"][name], tensor) for name, tensor in whole["weights"].items())


def run(save_to: Path | None, load_from: Path | None) -> dict[str, Any]:
    """Two epochs of four steps; saves after the fifth step, or continues from there."""
    torch.manual_seed(1 if save_to else 2)
    accelerator = Accelerator()
    module = Noisy()
    optim = torch.optim.AdamW(module.parameters(), lr=0.01)
    plain = torch.utils.data.DataLoader(loader("mlp", 32, 2).dataset, batch_size=2, shuffle=True)
    schedule = torch.optim.lr_scheduler.StepLR(optim, 3)
    module, optim, batches, schedule = accelerator.prepare(module, optim, plain, schedule)
    if load_from is not None:
        accelerator.load_state(load_from)
    losses: list[float] = []
    for _ in range(batches.epoch, 2):
        for x, y in batches:
            optim.zero_grad()
            loss = F.cross_entropy(module(x), y)
            accelerator.backward(loss)
            optim.step()
            schedule.step()
            losses.append(loss.item())
            if save_to is not None and len(losses) == 5:
                accelerator.save_state(save_to)
    return {"losses": losses, "weights": accelerator.get_state_dict(module)}
