from __future__ import annotations

import argparse
from dataclasses import dataclass, field, fields
from typing import Final, Iterable, NamedTuple

import torch
from crosstrain import Accelerator
from sklearn.datasets import load_diabetes
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.utils.data import DataLoader, Dataset, TensorDataset, random_split

FEATURES: Final[int] = 10


@dataclass
class Config:
    """What a run can be told. Every field is an option of the command line."""

    epochs: int = 2
    batch_size: int = 40
    lr: float = 0.02
    seed: int = 0
    hidden: list[int] = field(default_factory=lambda: [32, 16])
    device: str = "cuda" if torch.cuda.is_available() else "cpu"

    @classmethod
    def from_args(cls) -> Config:
        parser = argparse.ArgumentParser()
        for one in fields(cls):
            if one.name != "hidden":
                parser.add_argument(f"--{one.name}", type=type(getattr(cls, one.name)), default=getattr(cls, one.name))
        return cls(**vars(parser.parse_args()))


class Score(NamedTuple):
    loss: float
    rows: int

    @property
    def mean(self) -> float:
        return self.loss / self.rows


class Regressor(nn.Module):
    layers: nn.Sequential

    def __init__(self, sizes: Iterable[int]) -> None:
        super().__init__()
        modules: list[nn.Module] = []
        width: int = FEATURES
        for size in sizes:
            modules += [nn.Linear(width, size), nn.ReLU()]
            width = size
        self.layers = nn.Sequential(*modules, nn.Linear(width, 1))

    def forward(self, rows: Tensor) -> Tensor:
        return self.layers(rows).squeeze(1)


def make_data(seed: int) -> tuple[Dataset, Dataset]:
    rows, target = load_diabetes(return_X_y=True)
    x: Tensor = torch.tensor(rows, dtype=torch.float32) * 20
    y: Tensor = torch.tensor(target, dtype=torch.float32) / 100
    generator: torch.Generator = torch.Generator().manual_seed(seed)
    train, test = random_split(TensorDataset(x, y), [360, len(y) - 360], generator=generator)
    return train, test


def fit(model: nn.Module, loader: DataLoader, optimizer: Optimizer, device: torch.device) -> None:
    accelerator = Accelerator()
    model.train()
    criterion: nn.Module = nn.MSELoss()
    for rows, target in loader:
        rows = rows.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)
        optimizer.zero_grad()
        loss: Tensor = criterion(model(rows), target)
        accelerator.backward(loss)
        optimizer.step()


@torch.inference_mode()
def score(model: nn.Module, loader: DataLoader, device: torch.device) -> Score:
    accelerator = Accelerator()
    model.eval()
    total: float = 0.0
    count: int = 0
    loader = accelerator.prepare_evaluation(loader)
    for rows, target in loader:
        rows, target = rows.to(device), target.to(device)
        total += nn.functional.mse_loss(model(rows), target, reduction="sum").item()
        count += target.size(0)
    total, count = accelerator.merge(loader, total, count)
    return Score(total, count)


def main() -> None:
    config: Config = Config.from_args()
    torch.manual_seed(config.seed)
    accelerator = Accelerator(device=config.device)
    device: torch.device = accelerator.device
    train, test = make_data(config.seed)
    train_loader: DataLoader = DataLoader(train, batch_size=config.batch_size, shuffle=True)
    test_loader: DataLoader = DataLoader(test, batch_size=config.batch_size)
    model: Regressor = Regressor(config.hidden).to(device)
    optimizer: AdamW = AdamW(model.parameters(), lr=config.lr)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(config.epochs):
        fit(model, train_loader, optimizer, device)
        result: Score = score(model, test_loader, device)
        accelerator.print(f"epoch {epoch}: {result.mean:.4f} over {result.rows} rows")


if __name__ == "__main__":
    main()
