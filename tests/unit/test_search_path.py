"""Folders that scripts add to `sys.path`: found by the text, and looked into for what the script imports."""

from pathlib import Path

import pytest
from crosstrain_migrate.files.search_path import added_folders

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
            "if 1:\n    ROOT = osp.dirname(osp.abspath(__file__)) + '/../'\n    sys.path.append(ROOT)",
            "/home/me/project",
        ),
        ("if x:\n    ROOT = 'a'\nelse:\n    ROOT = 'b'\nsys.path.append(ROOT)", None),
        ("sys.path.append(os.environ['MODELS'])", None),
        ("where = 'a'\nwhere = 'b'\nsys.path.append(where)", None),
        ("def add(path):\n    sys.path.insert(0, path)", None),
        ("def add(to):\n  if to:\n    sys.path.insert(0, to)\nadd('lib')", "/home/me/project/run/lib"),
        ("def add(kind, path):\n    sys.path.append(path)\nadd('x', osp.join('..'))", "/home/me/project"),
        ("def add(path):\n    print(path)\nadd('lib')", None),
        ("sys.path.append(", None),
    ],
)
def test_which_folder_a_line_adds(line: str, folder: str | None) -> None:
    text = f"import os, sys\nimport os.path as osp\nfrom pathlib import Path\n{line}\n"
    assert added_folders(text, FILE) == ([] if folder is None else [folder])


def test_a_folder_of_a_root_that_the_text_does_not_say_is_the_nearest_above(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    text, file = "import sys\nsys.path.append(osp.join(C.root, '{}'))", tmp_path / "a" / "b" / "train.py"
    assert added_folders(text.format("lib"), file) == [str(tmp_path / "lib")]
    assert added_folders(text.format("other"), file) == []


def test_a_relative_folder_that_is_not_beside_the_file_is_where_the_script_is_started(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    text, file = "import sys\nsys.path.append('./lib')", tmp_path / "a" / "train.py"
    assert added_folders(text, file) == [str(tmp_path / "lib")]
    (tmp_path / "a" / "lib").mkdir(parents=True)
    assert added_folders(text, file) == [str(tmp_path / "a" / "lib")]
