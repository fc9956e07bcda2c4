"""What another file prints, writes and downloads: no function of it changes for that."""

from __future__ import annotations

from pathlib import Path

from tests.unit.test_project import changed, migrate, write

TRAIN = """\
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from tools import {name}

data = {call}
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(data, batch_size=4, shuffle=True)
for x, y in loader:
    x, y = x.to(device), y.to(device)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
SPEAKS = """\
def read(name):
    print("reading", name)
    print("this takes long")
    return load(name)


def load(name):
    return []
"""
FETCHES = """\
import os

import requests


def fetch(name):
    if os.path.exists(name):
        return name
    answer = requests.get("https://example.org/" + name, stream=True)
    with open(name, "wb") as file:
        for part in answer.iter_content():
            file.write(part)
    return name
"""
WRITES = """\
def noted(name):
    with open(name, "w") as file:
        file.write("begun")
"""


def train(name: str, call: str) -> str:
    return TRAIN.format(name=name, call=call)


def test_a_print_changes_no_signature(tmp_path: Path) -> None:
    other = "from tools import read\n\nread('x')\n"  # which a changed signature would break
    write(tmp_path, {"train.py": train("read", "read('x')"), "tools.py": SPEAKS, "other.py": other})
    outcome = migrate(tmp_path / "train.py")
    assert changed(outcome, tmp_path) == {"train.py"}
    notes = [f for file in outcome.files for f in file.result.findings if f.rule == "CT401"]
    assert len(notes) == 1, notes
    assert "and 1 more in this file" in notes[0].reason


def test_a_function_that_gets_the_accelerator_anyway_uses_it_to_print(tmp_path: Path) -> None:
    loop = """\
import torch.nn.functional as F


def fit(model, loader, optimizer, device):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("done")
"""
    head = train("fit", "[]").split("for x, y")[0]
    write(tmp_path, {"train.py": head + "fit(model, loader, optimizer, device)\n", "tools.py": loop})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == {"train.py", "tools.py"}
    assert 'accelerator.print("done")' in (tmp_path / "tools.py").read_text()


def test_what_a_far_helper_downloads_is_there_before_the_others_look(tmp_path: Path) -> None:
    """The Accelerator moves above the download, and the helper stays as it is: nothing in it is left to one process."""
    text = train("fetch", "fetch('x')")
    write(tmp_path, {"train.py": text, "tools.py": FETCHES})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == {"train.py"}
    after = (tmp_path / "train.py").read_text()
    first = "accelerator = Accelerator()\nwith accelerator.main_process_first():\n    data = fetch('x')\n"
    assert first in after


def test_the_accelerator_stays_behind_the_options_that_it_reads(tmp_path: Path) -> None:
    options = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--cpu', action='store_true')\n"
    text = train("fetch", "fetch('x')").replace(
        "device = torch", f"{options}args = parser.parse_args()\ndevice = torch"
    )
    text = text.replace("is_available()", "is_available() and not args.cpu")
    write(tmp_path, {"train.py": text, "tools.py": FETCHES})
    migrate(tmp_path / "train.py")
    after = (tmp_path / "train.py").read_text()
    assert after.index("parse_args()") < after.index("Accelerator(cpu=args.cpu)")


def test_a_far_helper_writes_on_the_main_process(tmp_path: Path) -> None:
    """It asks for the state that the accelerator shares, and is called as before."""
    text = train("noted", "[]") + "    noted('begun.txt')\n"
    write(tmp_path, {"train.py": text, "tools.py": WRITES})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == {"train.py", "tools.py"}
    tools = (tmp_path / "tools.py").read_text()
    assert "from crosstrain import PartialState" in tools
    assert "def noted(name):\n    if PartialState().is_main_process:\n        with open(" in tools
    again = migrate(tmp_path / "train.py")
    assert not changed(again, tmp_path)


def test_another_script_that_uses_what_does_not_change_is_no_objection(tmp_path: Path) -> None:
    """A file of the same package that only shares the name of a function with what changes."""
    pack = {"pack/__init__.py": "", "pack/one.py": "import os\n\n\ndef fit(path):\n    os.makedirs(path)\n"}
    lone = "import pack.one\n\n\ndef run(x):\n    return x\n\n\nprint(run(1))\n"
    text = train("fit", "[]").replace("from tools", "from pack.one") + "    fit('out')\n"
    text = text.replace("for x, y in loader", "def run(loss):\n    loss.backward()\n\nfor x, y in loader")
    write(
        tmp_path,
        {
            "train.py": text.replace("    loss.backward()\n    opt", "    run(loss)\n    opt"),
            **pack,
            "lone.py": lone,
        },
    )
    assert "train.py" in changed(migrate(tmp_path / "train.py"), tmp_path)
