"""The trial's own commands: the tool is called as it can be called."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

from tests.corpora.trial.run import commands

SCRIPT = """import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader([], 8):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


def test_the_trial_converts_a_script(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    options = Namespace(
        what="tool", trial=tmp_path, mirror=tmp_path, work=tmp_path, python=Path(sys.executable)
    )
    options.jobs, options.known = 1, True
    line = commands(options, [])
    paths = line[line.index("--pythonpath") + 1]
    command = [word.format(file=script.name) for word in shlex.split(line[line.index("--migrate-cmd") + 1])]
    subprocess.run(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": paths}, check=True)
    assert "accelerator.backward(" in script.read_text()
