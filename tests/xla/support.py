"""Run a function in a process of its own, on four virtual devices, and small trainings to run there."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tests.support.ranks import on_ranks, run_ranks

DEVICES = 4
TIMEOUT = 400.0  # seconds: XLA compiles for many of them on a busy machine
XLA = {"PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": str(DEVICES)}
# A test that runs in a new process with four XLA devices.
on_four_devices = on_ranks(1, timeout=TIMEOUT, env=XLA)


def on_xla(fn: Callable[..., Any], *args: Any, env: dict[str, str] | None = None) -> Any:
    """``fn(*args)`` in a new process with four XLA devices."""
    return run_ranks(fn, 1, *args, timeout=TIMEOUT, env=XLA | (env or {}))[0]


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        layers = {"first": nn.Linear(6, 16), "gelu": nn.GELU(), "second": nn.Linear(16, 3)}
        super().__init__(OrderedDict(layers))


class Conv(nn.Sequential):
    """No bias before the normalisation: its true gradient is zero, and Adam would normalise noise."""

    def __init__(self) -> None:
        conv = nn.Conv2d(1, 4, 3, bias=False)
        super().__init__(conv, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(1), nn.Linear(4 * 4 * 4, 3))


class Tied(nn.Module):
    """One layer of a language model whose embedding is its output projection."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.out = nn.Linear(8, 11, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.layer(self.embed(tokens))).transpose(1, 2)


MODELS: dict[str, type[nn.Module]] = {"mlp": Mlp, "conv": Conv, "tied": Tied}


def data(kind: str, rows: int) -> TensorDataset:
    torch.manual_seed(7)
    if kind == "tied":
        tokens = torch.randint(0, 11, (rows, 5))
        return TensorDataset(tokens, tokens.roll(1, 1))
    shape = (rows, 6) if kind == "mlp" else (rows, 1, 6, 6)
    return TensorDataset(torch.randn(shape), torch.randint(0, 3, (rows,)))


def model(kind: str) -> nn.Module:
    torch.manual_seed(3)
    return MODELS[kind]()


def optimizer(name: str, module: nn.Module) -> torch.optim.Optimizer:
    if name == "sgd":
        return torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    return torch.optim.AdamW(module.parameters(), lr=0.01)


def loader(kind: str, rows: int, size: int) -> DataLoader[Any]:
    return DataLoader(data(kind, rows), batch_size=size)


def plain_training(
    kind: str, opt: str, rows: int, size: int, epochs: int = 1
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and weights of the loop as anybody writes it, on the CPU."""
    module = model(kind)
    optim = optimizer(opt, module)
    losses = []
    for _ in range(epochs):
        for x, y in loader(kind, rows, size):
            optim.zero_grad()
            loss = F.cross_entropy(module(x), y)
            loss.backward()
            optim.step()
            losses.append(loss.item())
    return losses, module.state_dict()


def difference(a: dict[str, Tensor], b: dict[str, Tensor]) -> float:
    """The largest difference of any entry; both must have the same names."""
    assert a.keys() == b.keys()
    return max(((a[name].double() - b[name].double()).abs().max().item() for name in a), default=0.0)
