"""`migrate --explain-roles`: every role with file, line and evidence."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.cli import app
from typer.testing import CliRunner

GOLDEN = Path(__file__).parent.parent.parent / "golden"
MODEL = "from torch import nn\n\n\ndef build():\n    return nn.Linear(8, 3)\n"
TRAIN = """\
import torch
import torch.nn.functional as F
from model import build
from torch.utils.data import DataLoader, TensorDataset

where = "cuda" if torch.cuda.is_available() else "cpu"
data = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long)), batch_size=8)
net = build().to(where)
steps = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in data:
    steps.zero_grad()
    cost = F.cross_entropy(net(x.to(where)), y.to(where))
    cost.backward()
    steps.step()
"""


def explain(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["--explain-roles", *arguments])
    return result.exit_code, result.output


def test_every_role_has_its_place_and_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(MODEL)
    Path("train.py").write_text(TRAIN)
    code, text = explain("train.py")
    assert code == 0
    rows = [line.split(None, 3) for line in text.splitlines()]
    found = {(place, name, role) for place, name, role, *_ in (row for row in rows)}
    assert ("train.py:8", "net", "module") in found
    assert ("train.py:10", "data", "training") in found
    assert ("train.py:14", "steps", "optimizer") in found
    assert ("train.py:13", "cost", "loss") in found


def test_a_file_that_trains_nothing_says_so(tmp_path: Path) -> None:
    file = tmp_path / "empty.py"
    file.write_text("print('nothing')\n")
    code, text = explain(str(file))
    assert (code, "nothing here trains" in text) == (0, True)


def test_it_goes_to_a_file(tmp_path: Path) -> None:
    target = tmp_path / "roles.txt"
    code, text = explain(str(GOLDEN / "mnist_functions" / "before.py"), "--output", str(target))
    assert (code, text) == (0, "")
    assert "optimizer" in target.read_text()


def test_what_cannot_be_read_is_an_input_error(tmp_path: Path) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("def f(:\n")
    for path in (broken, tmp_path / "absent.py"):
        code, text = explain(str(path))
        assert code == 2
        assert path.name in text
