"""CT404: downloads are there before any process reads them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import torch

from .support import Case, converts, each, leaves, migrate

RULE = "CT404"
IMPORTS = "import os\nimport tarfile\nimport urllib.request\n\nfrom torchvision import datasets"
LOADER = "\ntrain_loader = DataLoader(train_set, batch_size=8, shuffle=True)"
FIRST = "with accelerator.main_process_first():\n"
SET = 'train_set = datasets.MNIST("data", download=True)'
FETCH = "urllib.request.urlretrieve('https://example.org/x', 'x')"
UNPACK = "with tarfile.open('x') as packed:\n    packed.extractall()"


def downloads(name: str, before: str, after: str, at: str = "download=True") -> Case:
    """`before` stands where the training data are made."""
    return converts(RULE, name, {"imports": IMPORTS, "data": before}, {"data": after}, at=at)


def indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.split("\n"))


PLAIN = 'train_set = datasets.MNIST("data")'
ASKED = f"if not os.path.exists('x'):\n    os.makedirs('data')\n    {FETCH}\n{indented(UNPACK)}"
POSITIVE = [
    downloads("a data set that downloads itself", SET + LOADER, f"{FIRST}    {SET}{LOADER}"),
    downloads(
        "neighbours share the block",
        f"{SET}\ntest_set = datasets.MNIST('data', train=False, download=True){LOADER}",
        f"{FIRST}    {SET}\n    test_set = datasets.MNIST('data', train=False, download=True){LOADER}",
    ),
    downloads(
        "data set and loader in one expression",
        'train_loader = DataLoader(datasets.MNIST("data", download=True), batch_size=8)',
        f'{FIRST}    train_loader = DataLoader(datasets.MNIST("data", download=True), batch_size=8)',
    ),
    downloads(
        "fetched where it is not there yet",
        f"{ASKED}\n{PLAIN}{LOADER}",
        f"{FIRST}{indented(ASKED)}\n{PLAIN}{LOADER}",
        at="if not os.path.exists",
    ),
    downloads(
        "fetched in any case",
        f"{FETCH}\n{PLAIN}{LOADER}",
        f"if accelerator.is_main_process:\n    {FETCH}\naccelerator.wait_for_everyone()\n{PLAIN}{LOADER}",
        at="urllib.request.urlretrieve",
    ),
    downloads(
        "unpacked in any case",
        f"{UNPACK}\n{PLAIN}{LOADER}",
        f"if accelerator.is_main_process:\n{indented(UNPACK)}\naccelerator.wait_for_everyone()\n{PLAIN}{LOADER}",
        at="with tarfile",
    ),
]
NEGATIVE = [
    leaves(RULE, "no download asked for", {"imports": IMPORTS, "data": PLAIN + LOADER}),
    leaves(
        RULE,
        "none wanted",
        {"imports": IMPORTS, "data": SET.replace("True", "False") + LOADER},
    ),
    leaves(
        RULE,
        "the callers decide",
        {
            "imports": IMPORTS,
            "definitions": "def get(download=False):\n    return datasets.MNIST('data', download=download)\n",
            "data": "train_set = get()" + LOADER,
        },
    ),
    leaves(
        RULE,
        "a file that must be there",
        {
            "imports": IMPORTS,
            "data": f"if not os.path.exists('x'):\n    raise SystemExit('no x')\n{PLAIN}{LOADER}",
        },
    ),
    leaves(
        RULE,
        "an archive that is only read",
        {
            "imports": IMPORTS,
            "data": f"with tarfile.open('x') as packed:\n    members = packed.getmembers()\n{PLAIN}{LOADER}",
        },
    ),
    leaves(
        RULE,
        "an answer that is no file",
        {
            "imports": IMPORTS,
            "data": f"urllib.request.urlopen('https://example.org/started').close()\n{PLAIN}{LOADER}",
        },
    ),
    leaves(
        RULE,
        "what else extracts",
        {
            "imports": IMPORTS + "\nfrom features import extractor",
            "data": f"extractor.extract('x')\n{PLAIN}{LOADER}",
        },
    ),
]


@each(POSITIVE, NEGATIVE)
def test_downloads(case: Case) -> None:
    case.check()


def test_what_others_need_of_a_fetch_is_only_told() -> None:
    """The main process alone would know the name."""
    data = f"name, _ = {FETCH}\nprint(name)\n{PLAIN}{LOADER}"
    script = downloads("", data, "").script
    result = migrate(script)
    assert "main_process_first" not in result.after
    assert [f.rule for f in result.findings if "every process downloads" in f.reason] == [RULE]


def test_a_loop_over_what_is_downloaded_is_only_told() -> None:
    """Training in it would wait inside of waiting."""
    data = f"for image, _ in datasets.MNIST('data', download=True):\n    print(image)\n{PLAIN}{LOADER}"
    result = migrate(downloads("", data, "").script)
    assert "main_process_first" not in result.after
    assert [f.rule for f in result.findings if "every process downloads" in f.reason] == [RULE]


def test_a_function_that_waits_is_not_called_one_by_one() -> None:
    """Waiting inside of waiting would leave the processes at different barriers."""
    helper = f"def get(download):\n{indented(ASKED)}\n    return datasets.MNIST('data')\n"
    case = converts(
        RULE,
        "",
        {"imports": IMPORTS, "definitions": helper, "data": f"train_set = get(download=True){LOADER}"},
        {},
    )
    result = migrate(case.script)
    assert result.after.count("main_process_first") == 1
    assert "\n    train_set = get(" not in result.after


SCRIPT = """\
import os
import shutil

import torch
from torch import nn
from torch.utils.data import DataLoader


def fetch(source):
    if not os.path.exists("data.pt"):
        print("fetching")
        with open("log", "a") as log:
            log.write("fetched\\n")
        shutil.unpack_archive(source, ".")
    return torch.load("data.pt")


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(fetch("packed.zip"), batch_size=4)
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in loader:
    optimizer.zero_grad()
    loss = model(x.to(device)).mean()
    loss.backward()
    optimizer.step()
"""


def test_two_processes_fetch_once(tmp_path: Path) -> None:
    packed = tmp_path / "there"
    packed.mkdir()
    torch.save(torch.ones(16, 8), packed / "data.pt")
    shutil.make_archive(str(tmp_path / "packed"), "zip", packed)
    (tmp_path / "train.py").write_text(migrate(SCRIPT).after)
    command = "import sys; from crosstrain.cli import main; sys.exit(main())"
    launch = ("launch", "--cpu", "--num-processes", "2", "train.py")
    subprocess.run([sys.executable, "-c", command, *launch], cwd=tmp_path, check=True, timeout=120)
    assert (tmp_path / "log").read_text() == "fetched\n"
