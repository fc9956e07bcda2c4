"""The command that plans scripts at first look, on a few trees of the kinds that it must survive."""

import json
from pathlib import Path

import pytest

from .first_look import main

TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from net import build

def main():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), batch_size=2):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

main()
"""
NET = "import torch\n\ndef build():\n    return torch.nn.Linear(4, 1)\n"


def test_the_command_measures_what_is_in_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, entries, diffs = tmp_path / "first", tmp_path / "entries", tmp_path / "diffs"
    files = {
        "one+plain/train.py": TRAIN,
        "one+plain/net.py": NET,
        "two+old/train.py": 'import torch\nloss.backward()\noptimizer.step()\nprint "loss"\n',
        "three+refused/train.py": TRAIN.replace("\nmain()", "\nimport torch.distributed.rpc as r\nr.rpc_sync('a', main)\nmain()"),
        "three+refused/net.py": NET,
    }  # fmt: skip
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    (folder / "one+plain" / "circle").symlink_to(folder, target_is_directory=True)
    (folder / "one+plain" / "gone.py").symlink_to("nowhere.py")
    names = [path for path in files if path.endswith("train.py")]
    entries.write_text("\n".join([*names, "one+plain/absent.py  # a comment"]))
    assert main([str(folder), "--entries", str(entries), "--diffs", str(diffs)]) == 0
    assert {path: (folder / path).read_text() for path in files} == files, "only read"
    report = json.loads(capsys.readouterr().out)
    plain, old, refused, absent = report["scripts"]
    outcomes = [one["outcome"] for one in report["scripts"]]
    assert outcomes == ["converted", "unreadable", "refused", "missing"]
    assert plain["files"] == ["train.py"] and 3 < plain["changed_lines"] < 20 and not plain["same_data"]
    assert "train.py" in old["reason"] and refused["refusals"][0].startswith("CT901 train.py:")
    assert absent["reason"] == "there is no such file"
    assert "+from crosstrain import Accelerator" in (diffs / "one+plain/train.py.diff").read_text()
    assert report["summary"]["outcomes"]["converted"] == report["summary"]["rules"]["CT901"] == 1
