"""`crosstrain merge-weights`: whatever a training saved, one file that any model loads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator, FullyShardedDataParallelPlugin
from crosstrain.cli import main
from safetensors.torch import load_file
from torch import Tensor, nn
from typer.testing import CliRunner

from tests.support.ranks import run_ranks


class Tied(nn.Module):
    """Two names for one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Linear(64, 64)
        self.head = nn.Linear(64, 64, bias=False)
        self.head.weight = self.inside.weight


def merge(source: Path, target: Path, code: int = 0) -> str:
    result = CliRunner().invoke(main, ["merge-weights", str(source), str(target)])
    assert result.exit_code == code, result.output
    return result.output


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.parametrize("suffix", ["pt", "safetensors"])
@pytest.mark.parametrize("how", ["shards", "state"])
def test_files_of_one_process(how: str, suffix: str, tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(Tied())
    if how == "shards":
        accelerator.save_model(model, tmp_path / "saved", max_shard_size="1KB")
        assert len(list((tmp_path / "saved").glob("*.safetensors"))) == 2
    else:
        accelerator.save_state(tmp_path / "saved")
    target = tmp_path / f"whole.{suffix}"
    assert merge(tmp_path / "saved", target).startswith(f"wrote {target}: 3 tensors")
    if suffix == "pt":
        loaded = torch.load(target, weights_only=True)
    else:
        loaded = load_file(target)
        loaded["head.weight"] = loaded["inside.weight"]  # safetensors stores one of them
    assert same(loaded, model.state_dict())


def _sharded(folder: str) -> dict[str, Any]:
    plugin = FullyShardedDataParallelPlugin(state_dict_type="SHARDED_STATE_DICT")
    accelerator = Accelerator(cpu=True, fsdp_plugin=plugin)
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters())
    model, optimizer = accelerator.prepare(model, optimizer)
    accelerator.backward(model(torch.rand(4, 8)).sum())
    optimizer.step()
    accelerator.save_state(folder)
    return accelerator.get_state_dict(model)


def test_parts_of_two_processes(tmp_path: Path) -> None:
    whole = run_ranks(_sharded, 2, str(tmp_path / "state"))[0]
    assert not (tmp_path / "state" / "model.safetensors").exists()
    merge(tmp_path / "state", tmp_path / "whole.safetensors")
    assert same(load_file(tmp_path / "whole.safetensors"), whole)


def test_refusals(tmp_path: Path) -> None:
    assert "has to end in one of" in merge(tmp_path, tmp_path / "whole.zip", 2)
    assert "holds no model.safetensors" in merge(tmp_path, tmp_path / "whole.pt", 2)
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(nn.Linear(2, 2))
    accelerator.save_state(tmp_path / "state")
    (tmp_path / "state" / "model.safetensors").write_bytes(b"cut")
    assert "model.safetensors is not what was saved" in merge(tmp_path / "state", tmp_path / "whole.pt", 2)
    assert not (tmp_path / "whole.pt").exists()
