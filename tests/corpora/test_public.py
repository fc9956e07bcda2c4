"""The command that converts the public scripts, on two checkouts that the test makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.corpora.public import __main__ as public

PLAIN = """
import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader([(torch.ones(2), torch.ones(1))] * 4, batch_size=2):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


def test_new_scripts_alone_are_converted_and_counted_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = [_script("old"), _script("fresh", new=True), _script("absent", new=True)]
    listed = tmp_path / "scripts.json"
    listed.write_text(json.dumps({"scripts": scripts}))
    monkeypatch.setattr(public, "SCRIPTS", listed)
    for name in ("old", "fresh"):
        (tmp_path / f"someone+{name}").mkdir()
        (tmp_path / f"someone+{name}" / "train.py").write_text(PLAIN)

    *lines, counts, share = _printed(tmp_path, monkeypatch, capsys, "--new")
    assert [line.split()[:3] for line in lines] == [
        ["fresh", "convert", "converted"],
        ["absent", "convert", "missing"],
    ]
    assert counts == "1 converted, 1 missing"
    assert share == "new: 1 of 2 plain, 0 of 0 distributed are converted"

    line, _, share = _printed(tmp_path, monkeypatch, capsys, "--only", "old")
    assert line.startswith("old ")
    assert share == "developed with: 1 of 1 plain, 0 of 0 distributed are converted"


def test_every_public_script_is_listed_once() -> None:
    scripts = json.loads(public.SCRIPTS.read_text("utf-8"))["scripts"]
    assert len({script["id"] for script in scripts}) == len(scripts) == 102
    assert sum(script.get("new", False) for script in scripts) == 47


def _script(name: str, *, new: bool = False) -> dict[str, object]:
    known = {"id": name, "repo": f"someone/{name}", "commit": "0" * 40, "script": "train.py"}
    return {**known, "expected": "convert", "distributed": False, **({"new": True} if new else {})}


def _printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *options: str
) -> list[str]:
    monkeypatch.setattr("sys.argv", ["public", str(folder), *options])
    assert public.main() == 0
    return capsys.readouterr().out.splitlines()
