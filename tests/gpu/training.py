"""A training on a device, as functions that other processes can run too."""

import copy
from pathlib import Path
from typing import Any

import torch
from crosstrain import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

ROWS, BATCH = 64, 8


class Net(nn.Module):
    """Convolutions, batch statistics (which two processes cannot share) and dropout."""

    def __init__(self, dropout: float = 0.0, *, statistics: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        norm = nn.BatchNorm2d(8) if statistics else nn.GroupNorm(2, 8)
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.body(x).mean((2, 3)))
        return out


def data(**options: Any) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(1)
    images = torch.randn(ROWS, 3, 8, 8, generator=generator)
    return DataLoader(TensorDataset(images, torch.arange(ROWS) % 4), batch_size=BATCH, **options)


def weights(model: nn.Module) -> dict[str, Tensor]:
    """On the CPU, and no longer changing."""
    return {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def plain(kind: str) -> dict[str, Tensor]:
    """One pass as one writes it by hand."""
    model = Net().to(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for x, y in data():
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x.to(kind)), y.to(kind)).backward()
        optimizer.step()
    return weights(model)


def train(
    kind: str,
    options: dict[str, Any] | None = None,
    memory_format: torch.memory_format = torch.contiguous_format,
    statistics: bool = True,
) -> dict[str, Tensor]:
    """The same pass by an Accelerator."""
    accelerator = Accelerator(cpu=kind == "cpu", **(options or {}))
    model = Net(statistics=statistics).to(memory_format=memory_format)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data(pin_memory=kind == "cuda"))
    for x, y in loader:
        assert x.device.type == kind
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            accelerator.clip_grad_norm_(model.parameters(), 100.0)
            optimizer.step()
    return weights(model)


def gathered(kind: str) -> dict[str, Any]:
    """Collectives of tensors on the device."""
    accelerator = Accelerator(cpu=kind == "cpu")
    mine = torch.full((2,), float(accelerator.process_index), device=accelerator.device)
    found = {
        "gather": accelerator.gather(mine).tolist(),
        "sum": accelerator.reduce(mine, "sum").tolist(),
        "max": accelerator.reduce(mine, "max").tolist(),
        "device": accelerator.gather(mine).device.type,
    }
    accelerator.end_training()
    return found


def resumed(kind: str, folder: Path, *, blocking: bool) -> tuple[list[Tensor], list[Tensor]]:
    """Weights after a save, with dropout; once as it went on, once as it goes on from the checkpoint."""
    accelerator = Accelerator(cpu=kind == "cpu")
    model = Net(dropout=0.5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, data())

    def epoch() -> None:
        for x, y in loader:
            accelerator.backward(nn.functional.cross_entropy(model(x), y))
            optimizer.step()
            optimizer.zero_grad()

    epoch()
    accelerator.save_state(folder, blocking=blocking)
    epoch()
    went_on = copy.deepcopy(list(weights(model).values()))
    accelerator.load_state(folder)
    epoch()
    return went_on, list(weights(model).values())
