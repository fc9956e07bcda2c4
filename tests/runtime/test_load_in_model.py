"""`load_checkpoint_in_model`: files and shards, models without memory, devices by name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from crosstrain import Accelerator, load_checkpoint_in_model
from torch import Tensor, nn


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
@pytest.mark.parametrize("device_map", [None, {"": "cpu"}, {"embed": "cpu", "": torch.device("cpu")}])
def test_files_and_shards(saved: tuple[Speaker, Path], name: str, device_map: dict[str, str] | None) -> None:
    model, folder = saved
    other = Speaker().eval()
    load_checkpoint_in_model(other, folder / name, device_map=device_map, strict=True)
    assert torch.equal(other(torch.arange(7)), model(torch.arange(7)))
    assert other.head.weight is other.embed.weight


def test_a_model_without_memory_gets_it_where_the_map_says(saved: tuple[Speaker, Path]) -> None:
    model, folder = saved
    with torch.device("meta"):
        empty = Speaker().eval()
    empty.scale = torch.full((1,), 2.0)
    empty.embed.weight.requires_grad_(False)
    load_checkpoint_in_model(empty, folder / "sharded", device_map={"": "cpu", "norm": "cpu"})
    assert torch.equal(empty(torch.arange(7)), model(torch.arange(7)))
    assert empty.head.weight is empty.embed.weight
    assert not empty.embed.weight.requires_grad
    assert empty.norm.weight.requires_grad


def test_what_is_missing_is_named(saved: tuple[Speaker, Path]) -> None:
    _, folder = saved
    with pytest.raises(ValueError, match=r"no device for norm.weight, norm.bias.* and \d more"):
        load_checkpoint_in_model(Speaker(), folder / "sharded", device_map={"embed": "cpu", "head": "cpu"})
    with torch.device("meta"):
        empty = nn.ModuleDict({"speaker": Speaker(), "more": nn.Linear(2, 2)})
    with pytest.raises(ValueError, match=r"holds nothing for .*more.weight"):
        load_checkpoint_in_model(empty, folder / "sharded", device_map={"": "cpu"})
    with pytest.raises(NotImplementedError, match="install accelerate"):
        load_checkpoint_in_model(Speaker(), folder / "sharded", device_map={"": "disk"})
    with pytest.raises(NotImplementedError, match=r"'auto'.*give a dict"):
        load_checkpoint_in_model(Speaker(), folder / "sharded", device_map="auto")  # type: ignore[arg-type]
