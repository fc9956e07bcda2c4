"""The short form of `python -m tests.corpora.first_look`: a few trees, made here, of the kinds that it must survive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.corpora.first_look.checkout import Checkout
from tests.corpora.first_look.entries import find
from tests.corpora.first_look.preparation import OWN_SAMPLER, PREPARED, UNPREPARED
from tests.corpora.first_look.reach import Reach
from tests.corpora.first_look.training import Training

ROOT = Path(__file__).resolve().parents[2]

TRAIN = """\
import torch
from torch.utils.data import DataLoader, TensorDataset
from net import build

def main():
    model = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.randn(8, 4), torch.randn(8, 1))
    loader = DataLoader(data, batch_size=2)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

if __name__ == "__main__":
    main()
"""
NET = """\
import torch

def build():
    return torch.nn.Linear(4, 1)

if __name__ == "__main__":
    build()(torch.randn(2, 4)).sum().backward()
"""
PYTHON_2 = """\
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in xrange(3):
    loss = model(torch.randn(2, 4)).mean()
    loss.backward()
    optimizer.step()
    print "loss", loss
"""


def write(root: Path, files: dict[str, str]) -> Path:
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


def notebook(*cells: str) -> str:
    made = [
        {"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": c}
        for c in cells
    ]
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def damaged(root: Path) -> Path:
    """A tree with everything in it that stops a careless reader."""
    write(root, {"ok/train.py": TRAIN, "ok/net.py": NET, "notes.ipynb": "{", "deep.py": "x = " + "(" * 5000})
    (root / "latin.py").write_bytes(b"# caf\xe9\nimport torch\nloss.backward()\nopt.step()\n")
    (root / "nul.py").write_bytes(b"import torch\x00\nloss.backward()\noptimizer.step()\n")
    (root / "folder.py").mkdir()
    (root / "ok" / "circle").symlink_to(root, target_is_directory=True)
    (root / "gone.py").symlink_to("nowhere.py")
    (root / "out").symlink_to("/", target_is_directory=True)
    return root


def run(*words: str | Path, tool: Path | None = None) -> subprocess.CompletedProcess[str]:
    paths = [str(tool)] if tool else [str(ROOT / name) for name in ("migrate", "runtime", "templates")]
    return subprocess.run(
        [sys.executable, "-m", "tests.corpora.first_look", *map(str, words)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )


@pytest.mark.timeout(1200)
def test_the_command_measures_whatever_is_in_a_folder(tmp_path: Path) -> None:
    first = tmp_path / "first"
    write(
        first / "one+plain",
        {"train.py": TRAIN, "net.py": NET, "other.py": "import net\nprint(net.build())\n"},
    )
    write(first / "two+old", {"train.py": PYTHON_2})
    write(
        first / "three+cells",
        {"train.ipynb": notebook("%matplotlib inline\n" + TRAIN.split("\ndef main")[0])},
    )
    write(
        first / "four+refused",
        {"train.py": TRAIN.replace("main()\n", "main()\n    rpc.rpc_sync('a', main)\n")},
    )
    damaged(first / "five+damaged")
    (first / "five+damaged" / "train.py").symlink_to("ok/train.py")
    before = {path: path.read_bytes() for path in first.rglob("*") if path.is_file()}
    report = json.loads(run(first, "--timeout", "60", "--diffs", tmp_path / "diffs").stdout)
    assert {path: path.read_bytes() for path in first.rglob("*") if path.is_file()} == before  # only read
    looks = {f"{one['checkout']}/{one['script']}": one for one in report["scripts"]}
    assert set(looks) >= {
        "one+plain/train.py",
        "two+old/train.py",
        "five+damaged/ok/train.py",
        "five+damaged/latin.py",
    }
    assert (
        "one+plain/net.py" not in looks and "three+cells/train.ipynb" not in looks
    )  # neither steps an optimizer
    plain = looks["one+plain/train.py"]
    assert (
        plain["outcome"] == "converted" and plain["files"] == ["train.py"] and 3 < plain["changed_lines"] < 20
    )
    assert [one["state"] for one in plain["data"]] == [PREPARED] and not plain["unprepared"]
    assert plain["seconds"] > 0
    assert (
        looks["two+old/train.py"]["outcome"] == "unreadable"
        and "train.py" in looks["two+old/train.py"]["reason"]
    )
    assert looks["five+damaged/ok/train.py"]["outcome"] == "converted"
    assert "+from crosstrain import Accelerator" in (tmp_path / "diffs/one+plain/train.py.diff").read_text()
    assert report["summary"]["scripts"] == len(looks) and report["summary"]["outcomes"]["converted"] >= 2


def test_entries_are_scripts_that_reach_a_backward_and_a_step(tmp_path: Path) -> None:
    engine = "def train(model, optimizer, loader):\n    for x in loader:\n        model(x).backward()\n        optimizer.step()\n"
    files = {
        "engine.py": engine,  # defines only
        "main.py": "from engine import train\nif __name__ == '__main__':\n    train(1, 2, 3)\n",
        "tools/run.py": "import sys\nsys.path.append('..')\nimport engine as e\ne.train(1, 2, 3)\n",
        "test.py": "from engine import train\nprint('evaluates')\n",  # never calls it
        "never.py": "from engine import train\nif False:\n    train(1, 2, 3)\n",
        "attack.py": "import torch\nx = torch.ones(1, requires_grad=True)\nx.sum().backward()\nprint(x.grad)\n",
        "by_name.py": "import engine\nfor name in ['train']:\n    getattr(engine, name)(1, 2, 3)\n",
        "cells.ipynb": notebook("!pip install x", "from engine import train", "train(1, 2, 3)"),
    }
    assert find(Checkout(write(tmp_path, files))) == ["by_name.py", "cells.ipynb", "main.py", "tools/run.py"]


HEAD = "import torch\nfrom torch.utils.data import DataLoader\n"
LOOP = "    for x, y in {}:\n        accelerator.backward(model(x))\n        optimizer.step()\n"


def deeper(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


CASES = {
    "prepared": (
        "loader = accelerator.prepare(DataLoader(data))\ndef main():\n" + LOOP.format("loader"),
        PREPARED,
    ),
    "bar of its own name": (
        "def main(loader):\n    loader = tqdm(loader)\n"
        + LOOP.format("enumerate(loader)")
        + "if __name__ == '__main__':\n    main(accelerator.prepare(DataLoader(data)))\n",
        PREPARED,
    ),
    "a wrapper class, prepared inside": (
        "class Loader:\n    def __init__(self):\n        self.inner = accelerator.prepare(DataLoader(data))\n"
        "    def __iter__(self):\n        return iter(self.inner)\n"
        "def main():\n    loader = Loader()\n" + LOOP.format("loader"),
        PREPARED,
    ),
    "a factory of two": (
        "def loaders():\n    train, test = DataLoader(data), DataLoader(other)\n"
        "    train = accelerator.prepare(train)\n    return train, test\n"
        "def main():\n    train, test = loaders()\n" + LOOP.format("train"),
        PREPARED,
    ),
    "next in a step function": (
        "def step(it):\n    x = next(it)\n    accelerator.backward(model(x))\n    optimizer.step()\n"
        "def main():\n    loader = DataLoader(data)\n    it = iter(loader)\n    for i in range(9):\n        step(it)\n",
        UNPREPARED,
    ),
    "chunks of a batch": (
        "def main():\n    loader = accelerator.prepare(DataLoader(data))\n    for batch in loader:\n"
        "        for x in batch.chunk(2):\n            accelerator.backward(model(x))\n        optimizer.step()\n",
        PREPARED,
    ),
    "phases": (
        "def main():\n    loaders = {'train': DataLoader(data), 'val': DataLoader(other)}\n"
        "    for phase in ['train', 'val']:\n        loaders[phase] = accelerator.prepare(loaders[phase])\n"
        "    for phase in ['train', 'val']:\n" + deeper(LOOP.format("loaders[phase]")),
        PREPARED,
    ),
    "its own sampler": (
        "def main():\n    loader = DataLoader(data, sampler=DistributedSampler(data))\n"
        + LOOP.format("loader"),
        OWN_SAMPLER,
    ),
    "an attack is no training": (
        "def attack(loader):\n    for x in loader:\n        model(x).backward()\n"
        "def main():\n    attack(DataLoader(data))\n    loader = accelerator.prepare(DataLoader(data))\n"
        + LOOP.format("loader"),
        PREPARED,
    ),
}


@pytest.mark.parametrize(("source", "expected"), CASES.values(), ids=CASES)
def test_what_the_training_loop_reads(source: str, expected: str, tmp_path: Path) -> None:
    called = "" if "__main__" in source else "main()\n"
    root = write(tmp_path, {"train.py": HEAD + source + called})
    assert [one.state for one in Training(Reach(Checkout(root), "train.py")).data()] == [expected]
