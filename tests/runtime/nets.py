"""A small model with methods of its own, data for it, and whether two of it are the same."""

from typing import Any

import torch
from crosstrain.step.buckets import Bucket
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

State = dict[str, Tensor]


class Net(nn.Module):
    """Has its own methods, a tied weight, and an attribute that DDP has too."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.encoder = nn.Linear(4, 6)
        self.decoder = nn.Linear(6, 4)
        self.head = nn.Linear(4, 6)
        self.head.weight = self.encoder.weight
        self.device = "mine"

    def encode(self, x: Tensor) -> Tensor:
        return self.encoder(x).tanh()

    def decode(self, z: Tensor) -> Tensor:
        return self.decoder(z)

    def forward(self, x: Tensor) -> Tensor:
        return self.decode(self.encode(x)) + self.head(x)[:, :4]

    def loss(self, x: Tensor) -> Tensor:
        return (self(x) - x).square().mean()


def data(n: int = 10) -> DataLoader[Any]:
    generator = torch.Generator().manual_seed(3)
    return DataLoader(TensorDataset(torch.randn(n, 4, generator=generator)), batch_size=6, shuffle=True)


def same(a: State, b: State, tolerance: float = 1e-6) -> bool:
    return all(torch.allclose(a[name], b[name], atol=tolerance, rtol=1e-5) for name in a)


WEIGHTED = {"split_batches": True, "even_batches": "weighted"}


def averagings() -> list[Bucket]:
    """The buckets that begin to be averaged in this process from here on."""
    kind: Any = Bucket
    start, begun = kind.start, list[Bucket]()

    def noted(bucket: Bucket, *args: Any, **kwargs: Any) -> None:
        begun.append(bucket)
        start(bucket, *args, **kwargs)

    kind.start = noted
    return begun
