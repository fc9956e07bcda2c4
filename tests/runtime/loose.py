"""A training of parameters that only its optimizer knows."""

from collections.abc import Callable
from typing import Any

import torch
from crosstrain import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, Optimizer

ROWS, FEATURES, STEPS = 12, 4, 3
Values = list[Tensor]


class Wrapper:
    """A model that is no `nn.Module`: nothing but its optimizer tells what it trains."""

    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(FEATURES, 6), nn.Tanh(), nn.Linear(6, 1))
        self.scale = nn.Parameter(torch.rand(()) + 0.5)
        self.table = nn.Parameter(torch.randn(ROWS, FEATURES))

    def parameters(self) -> list[nn.Parameter]:
        return [*self.net.parameters(), self.scale, self.table]

    def loss(self, rows: Tensor) -> Tensor:
        return (self.net(batch()[rows] + F.embedding(rows, self.table)) * self.scale).square().mean()


def batch() -> Tensor:
    return torch.randn(ROWS, FEATURES, generator=torch.Generator().manual_seed(5))


class Run:
    """One training of a case on this rank's rows, from values that differ by rank until `prepare`."""

    def __init__(self, accelerator: Accelerator) -> None:
        self.accelerator = accelerator
        self.rank, self.world = accelerator.process_index, accelerator.num_processes
        self.rows = torch.arange(ROWS).tensor_split(self.world)[self.rank]
        torch.manual_seed(self.rank)
        self.model = Wrapper()

    def sgd(self, params: Any, **options: Any) -> Optimizer:
        optimizer: Optimizer = self.accelerator.prepare(SGD(params, 0.2, momentum=0.5, **options))
        return optimizer

    def train(self, optimizer: Optimizer, loss: Callable[[Tensor], Tensor], plain: bool = False) -> None:
        for _ in range(STEPS):
            made = loss(self.rows)
            if plain:
                made.backward()  # type: ignore[no-untyped-call]
            else:
                self.accelerator.backward(made)
            optimizer.step()
            optimizer.zero_grad()
