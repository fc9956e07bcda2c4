"""Compiling a model block by block."""

from pathlib import Path

import pytest
import torch
from crosstrain import Accelerator, load_checkpoint_in_model, utils
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


# -- `load_checkpoint_in_model`: files and shards ----------------------------------------------------------


class Speaker(nn.Module):
    """Tied weights, a buffer that is saved and one that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(90, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 90, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("scale", torch.full((1,), 2.0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        scaled: Tensor = self.head(self.norm(self.embed(x))) * self.scale
        return scaled


@pytest.fixture
def saved(tmp_path: Path) -> tuple[Speaker, Path]:
    torch.manual_seed(3)
    model = Speaker()
    model(torch.arange(7))  # batch statistics
    Accelerator(cpu=True).save_model(model, tmp_path / "sharded", max_shard_size="1KB")
    Accelerator(cpu=True).save_model(model, tmp_path / "whole.pt")
    assert (tmp_path / "sharded" / "model.safetensors.index.json").exists()
    return model.eval(), tmp_path


@pytest.mark.parametrize("name", ["sharded", "whole.pt"])
def test_files_and_shards(saved: tuple[Speaker, Path], name: str) -> None:
    model, folder = saved
    other = Speaker().eval()
    load_checkpoint_in_model(other, folder / name, strict=True)
    assert torch.equal(other(torch.arange(7)), model(torch.arange(7)))
    assert other.head.weight is other.embed.weight
