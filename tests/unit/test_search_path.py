"""Folders that scripts add to `sys.path`: found by the text, and looked into for what the script imports."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.files.search_path import added_folders
from crosstrain_migrate.results import Options

FILE = Path("/home/me/project/run/train.py")


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ('sys.path.append("..")', "/home/me/project"),
        ('sys.path.insert(0, "/opt/models")', "/opt/models"),
        ('sys.path.append(os.path.join(os.path.dirname(__file__), "..", "lib"))', "/home/me/project/lib"),
        ("sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))", "/home/me/project"),
        ("sys.path.append(osp.realpath(osp.join(osp.dirname(__file__), osp.pardir)))", "/home/me/project"),
        ("sys.path.insert(1, str(Path(__file__).resolve().parent.parent))", "/home/me/project"),
        ("sys.path.insert(1, str(Path(__file__).parents[1] / 'lib'))", "/home/me/project/lib"),
        ("sys.path.append(Path(__file__).parent.joinpath('lib').as_posix())", None),
        ("sys.path.append(os.getcwd())", "/home/me/project/run"),
        ("HERE = os.path.dirname(__file__)\nROOT = HERE + '/..'\nsys.path.append(ROOT)", "/home/me/project"),
        ("sys.path.append(f'{os.path.dirname(__file__)}/lib')", "/home/me/project/run/lib"),
        ("sys.path.extend(['lib'])", "/home/me/project/run/lib"),
        ("sys.path.insert(1, os.path.join(sys.path[0], '../lib'))", "/home/me/project/lib"),
        ("sys.path.insert(1, os.path.join(sys.path[1], '../lib'))", None),
        ("sys.path += ['lib']", None),
        (
            "if 1:\n    ROOT = os.path.dirname(os.path.abspath(__file__)) + '/../'\n    sys.path.append(ROOT)",
            "/home/me/project",
        ),
        ("if x:\n    ROOT = 'a'\nelse:\n    ROOT = 'b'\nsys.path.append(ROOT)", None),
        ("sys.path.append(os.environ['MODELS'])", None),
        ("where = 'a'\nwhere = 'b'\nsys.path.append(where)", None),
        ("def add(path):\n    sys.path.insert(0, path)", None),
        (
            "def add(path):\n    if path:\n        sys.path.insert(0, path)\nadd('lib')",
            "/home/me/project/run/lib",
        ),
        ("def add(kind, path):\n    sys.path.append(path)\nadd('x', osp.join('..'))", "/home/me/project"),
        ("def add(path):\n    print(path)\nadd('lib')", None),
        ("sys.path.append(", None),
    ],
)
def test_which_folder_a_line_adds(line: str, folder: str | None) -> None:
    text = f"import os, sys\nimport os.path as osp\nfrom pathlib import Path\n{line}\n"
    assert added_folders(text, FILE) == ([] if folder is None else [folder])


NETS = """\
from torch import nn
import sizes


def build():
    return nn.Linear(8, sizes.CLASSES).cuda()
"""
TRAIN = """\
import sys

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

sys.path.append("../common")
import nets

loader = DataLoader(TensorDataset(torch.randn(48, 8), torch.randint(0, 3, (48,))), batch_size=8)
model = nets.build()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    F.cross_entropy(model(x.cuda()), y.cuda()).backward()
    optimizer.step()
"""


def test_a_module_of_an_added_folder_is_migrated_with_its_script(tmp_path: Path) -> None:
    """And what it imports in turn, from the same folder."""
    for name, text in (
        ("run/train.py", TRAIN),
        ("common/nets.py", NETS),
        ("common/sizes.py", "CLASSES = 3\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    outcome = run(Request((tmp_path / "run/train.py",), Options(), Mode.WRITE, cache=False), migrate_text)
    assert {file.source.path.name for file in outcome.changed} == {"train.py", "nets.py"}
    assert (
        "return nn.Linear(8, sizes.CLASSES).to(PartialState().device)\n"
        in (tmp_path / "common/nets.py").read_text()
    )


@pytest.mark.parametrize(("importer", "is_read"), [("__init__", True), ("build", False)])
def test_a_package_that_names_its_modules_without_a_dot(importer: str, is_read: bool, tmp_path: Path) -> None:
    """As packages did in Python 2: only `__init__.py`, since anything else may mean what is installed."""
    package = tmp_path / "models"
    package.mkdir()
    (tmp_path / "train.py").write_text(
        TRAIN.replace("import nets", "from models import *").replace("nets.", "")
    )
    files = {
        "__init__": "",
        "build": "",
        "layers": NETS.replace("sizes.CLASSES", "3").replace("import sizes", ""),
    }
    files["__init__"] = "from build import *\n" if importer == "__init__" else "from .build import *\n"
    files["build"] = "from .layers import *\n" if importer == "__init__" else "from layers import *\n"
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    outcome = run(Request((tmp_path / "train.py",), Options(), Mode.WRITE, cache=False), migrate_text)
    assert ("layers.py" in {file.source.path.name for file in outcome.changed}) is is_read


@pytest.mark.parametrize(("name", "is_read"), [("mine", True), ("yours", False)])
def test_a_project_that_is_the_package_itself(name: str, is_read: bool, tmp_path: Path) -> None:
    """`PYTHONPATH=.. python train.py`, where the project's folder has the name that the script imports from."""
    folder = tmp_path / name
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN.replace("import nets", "from mine import nets"))
    (folder / "nets.py").write_text(NETS.replace("sizes.CLASSES", "3").replace("import sizes", ""))
    outcome = run(Request((folder / "train.py",), Options(), Mode.WRITE, cache=False), migrate_text)
    assert ("nets.py" in {file.source.path.name for file in outcome.changed}) is is_read


@pytest.mark.parametrize(
    ("files", "is_read"),
    [
        (("LICENSE", "run/README.md"), True),  # a folder of a project explains itself as well
        (("run/LICENSE", "README.md"), False),
        (("LICENSE", "run/nets/table.txt"), True),  # a folder of data with the module's name
        (("LICENSE", "run/nets/__init__.py"), False),
    ],
)
def test_a_module_of_the_project_above_the_script(
    files: tuple[str, ...], is_read: bool, tmp_path: Path
) -> None:
    (tmp_path / "run/nets").mkdir(parents=True)
    for name in files:
        (tmp_path / name).write_text("")
    text = TRAIN.replace("import nets", "from nets.mine import build").replace("nets.build", "build")
    (tmp_path / "run/train.py").write_text(text)
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets/mine.py").write_text(NETS.replace("sizes.CLASSES", "3").replace("import sizes", ""))
    outcome = run(Request((tmp_path / "run/train.py",), Options(), Mode.WRITE, cache=False), migrate_text)
    assert ("mine.py" in {file.source.path.name for file in outcome.changed}) is is_read
