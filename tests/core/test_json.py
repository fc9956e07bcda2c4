"""`migrate --output-format json`: what a program needs to go on from."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_reports import schema

SEARCHES = """\
import torch
from torch.utils.data import DataLoader
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.LBFGS(model.parameters())
for x in DataLoader(torch.randn(8, 4), batch_size=2):
    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss
    closure()
    optimizer.step(closure)
"""


def migrate(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crosstrain_migrate", *options]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("options", [(), ("--check",), ("--todo", "--fail-on", "edits")])
def test_json_of_the_command(tmp_path: Path, options: tuple[str, ...]) -> None:
    (tmp_path / "train.py").write_text(SEARCHES)
    (tmp_path / "broken.py").write_text("import torch\n(")
    ran = migrate(tmp_path, "train.py", "broken.py", "--output-format", "json", *options)
    report = json.loads(ran.stdout)
    assert [error.message for error in schema("migrate").iter_errors(report)] == []
    assert report["exit"]["code"] == ran.returncode == 2
    (file,) = report["files"]
    assert file["outcome"] == "refused" and file["launch"] == ""
    (left,) = file["findings"]
    assert "accelerator.reduce" in left["remedy"]
    assert left["around"]["code"].split("\n")[left["line"] - left["around"]["line"]].startswith("optimizer =")


def test_json_says_how_to_launch_what_was_converted(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SEARCHES.replace("LBFGS", "SGD").replace("step(closure)", "step()"))
    ran = migrate(tmp_path, "train.py", "--output-format", "json")
    report = json.loads(ran.stdout)
    assert report["exit"] == {"code": 0, "meaning": "done, or there was nothing to do"}
    assert report["files"][0]["launch"] == "crosstrain launch --num-processes 2 train.py"
