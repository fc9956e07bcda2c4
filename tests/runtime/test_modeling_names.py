"""Helpers for models under Accelerate's names."""

from __future__ import annotations

import pytest
import torch
from crosstrain import utils
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


def test_tied_parameters_are_found_and_tied_again() -> None:
    net = Net()
    tied = utils.find_tied_parameters(net)
    assert tied == [["inside.weight", "outside.weight"]]
    assert utils.find_tied_parameters(nn.Linear(1, 1)) == []
    net.outside.weight = nn.Parameter(net.inside.weight.detach().to("meta"))
    utils.retie_parameters(net, tied)
    assert net.outside.weight is net.inside.weight


def test_a_tensor_of_a_module_gets_a_value() -> None:
    put = utils.set_module_tensor_to_device
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    put(net, "0.weight", "cpu", value=torch.ones(2, 2, dtype=torch.float64))
    assert torch.equal(net[0].weight, torch.ones(2, 2))  # its own dtype
    assert isinstance(net[0].weight, nn.Parameter)
    assert net[0].weight.requires_grad
    put(net, "0.weight", "cpu", value=torch.zeros(2, 2), dtype=torch.bfloat16)
    assert net[0].weight.dtype == torch.bfloat16
    put(net, "1.num_batches_tracked", "cpu", value=torch.tensor(3), dtype=torch.float16)
    assert net[1].num_batches_tracked.dtype == torch.int64
    put(net, "0.weight", "meta")
    assert net[0].weight.is_meta
    for name, options in {"0.bias": {}, "0.weigh": {}, "1.weight": {"value": torch.ones(3)}}.items():
        with pytest.raises(ValueError, match=name.partition(".")[2] if not options else "shape"):
            put(net, name, "cpu", **options)


def test_repeated_blocks_are_compiled_one_by_one() -> None:
    net, x = Net(), torch.randn(2, 4)
    expected = net(x)
    compiled = utils.compile_regions(net, backend="eager")
    assert torch.equal(compiled(x), expected)
    assert utils.has_compiled_regions(compiled)
    assert not utils.has_compiled_regions(Net())
