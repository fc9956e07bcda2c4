"""Compiling a model block by block."""

from __future__ import annotations

import pytest
import torch
from crosstrain import Accelerator, utils
from crosstrain.utils import TorchDynamoPlugin
from torch import Tensor, nn


class Net(nn.Module):
    """Repeated blocks beside other layers; the first and the last layer share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(4, 4)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 4), nn.ReLU()) for _ in range(3))
        self.outside = nn.Linear(4, 4)
        self.outside.weight = self.inside.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.inside(x)
        for block in self.blocks:
            x = block(x)
        return self.outside(x)


def test_repeated_blocks_are_compiled_one_by_one() -> None:
    net, x = Net(), torch.randn(2, 4)
    expected = net(x)
    compiled = utils.compile_regions(net, backend="eager")
    assert torch.equal(compiled(x), expected)
    assert utils.has_compiled_regions(compiled)
    assert not utils.has_compiled_regions(Net())


@pytest.mark.parametrize("regional", [True, False])
def test_the_plugin_says_what_is_compiled(regional: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda self, **options: compiled.append(self))
    plugin = TorchDynamoPlugin(backend="eager", use_regional_compilation=regional)
    net = Net()
    Accelerator(cpu=True, dynamo_plugin=plugin).prepare(net)
    assert compiled == ([net.inside, *net.blocks, net.outside] if regional else [net])
