"""A training so small that it is saved and loaded in no time."""

from pathlib import Path
from typing import Any

import torch
from crosstrain import Accelerator, ProjectConfiguration
from torch import nn
from torch.utils.data import DataLoader


class Count:
    """Something of the script's own that is registered."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value, "more": torch.arange(2)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]


def small_training(folder: Path, **options: Any) -> tuple[Accelerator, nn.Module]:
    """A model, optimizer, scheduler and loader, prepared; project of numbered checkpoints."""
    config = ProjectConfiguration(str(folder), automatic_checkpoint_naming=True, **options)
    accelerator = Accelerator(cpu=True, project_config=config)
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    accelerator.prepare(model, optimizer, scheduler, DataLoader(torch.zeros(4, 1)))
    return accelerator, model


def save_weight(accelerator: Accelerator, model: nn.Module, value: float) -> Path:
    nn.init.constant_(model.weight, value)
    return Path(accelerator.save_state())
