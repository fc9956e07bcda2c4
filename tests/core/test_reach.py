"""Nothing is edited that the entry script's training does not reach, whatever its name is."""

from __future__ import annotations

from pathlib import Path

from .projects import convert, write

ENTRY = """
import torch
from torch.utils.data import DataLoader
{imports}

class Run:
    def train(self):
        net = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for x in DataLoader(range(8)):
            optimizer.zero_grad()
            net(x).square().mean().backward()
            optimizer.step()

run = Run()
run.train()
{more}
"""
OTHER = """
import torch

__all__ = ["train", "score"]

def train(net):
    return torch.nn.DataParallel(net).cuda()

def score():
    return torch.ones(1).cuda()
"""


def edited(folder: Path, imports: str, more: str = "", **others: str) -> bool:
    files = {"other": OTHER} | others
    convert(write(folder, entry=ENTRY.format(imports=imports, more=more), **files), "entry")
    return (folder / "other.py").read_text().strip() != OTHER.strip()


def test_a_method_is_no_function_of_another_file(tmp_path: Path) -> None:
    assert not edited(tmp_path, "import other")


def test_what_a_module_is_asked_for_is_reached(tmp_path: Path) -> None:
    assert edited(tmp_path, "import other", "other.score()")


def test_a_name_is_what_its_file_imports(tmp_path: Path) -> None:
    mine = "def score():\n    return 1\n"
    assert not edited(tmp_path, "import other\nfrom mine import score", "score()", mine=mine)


def test_an_imported_name_is_reached(tmp_path: Path) -> None:
    assert edited(tmp_path, "from other import score", "score()")


def test_a_name_that_is_passed_on_is_reached(tmp_path: Path) -> None:
    assert edited(tmp_path, "from passing import score", "score()", passing="from other import score\n")


def test_a_function_under_another_name_is_reached(tmp_path: Path) -> None:
    assert edited(tmp_path, "from other import score as judged", "judged()")


CLASSES = """
import torch

class Other:
    def __init__(self):
        self.net = torch.nn.Linear(1, 1).cuda()

    def train(self):
        return self.net.cuda()

class Named(Other):
    def train(self):
        return 1
"""


def changed(folder: Path, more: str, imports: str = "import other") -> str:
    """What the conversion leaves of `.cuda()` in a file of classes."""
    write(folder, entry=ENTRY.format(imports=imports, more=more), other=CLASSES)
    convert(folder, "entry")
    return (folder / "other.py").read_text()


def test_of_a_class_that_nothing_names_no_method_is_reached(tmp_path: Path) -> None:
    assert changed(tmp_path, "").strip() == CLASSES.strip()


def test_the_methods_of_a_named_class_and_of_its_bases_are_reached(tmp_path: Path) -> None:
    assert ".cuda()" not in changed(tmp_path, "other.Named().train()")


def test_a_class_that_is_looked_up_is_reached(tmp_path: Path) -> None:
    after = changed(tmp_path, "import sys\ngetattr(other, sys.argv[1])().train()")
    assert "self.net.cuda()" not in after


def test_a_class_of_one_of_several_modules_is_reached(tmp_path: Path) -> None:
    after = changed(tmp_path, "modules = {'o': other}\nmodules['o'].Other().train()")
    assert ".cuda()" not in after


def test_a_package_that_adds_a_folder_to_the_search_path_keeps_its_name(tmp_path: Path) -> None:
    for name in ("package", "package/toy"):
        (tmp_path / name).mkdir()
    (tmp_path / "package/__init__.py").write_text("import sys\nsys.path.append('.')\n" + OTHER)
    (tmp_path / "package/toy/__init__.py").write_text("def score():\n    return 1\n")
    write(tmp_path, entry=ENTRY.format(imports="from package.toy import score", more="score()"))
    convert(tmp_path, "entry")
    assert "torch.ones(1).cuda()" in (tmp_path / "package/__init__.py").read_text()


PIECES = """
import torch

class Text:
    def __init__(self):
        self.train = torch.arange(32.0)

    def pieces(self):
        return Pieces(self.train)

class Pieces:
    def __init__(self, text):
        self.text = text

    def __iter__(self):
        return iter(self.text.reshape(4, 8))
"""
GIVEN = """
import torch
from pieces import Text

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
text = Text().pieces()

def train():
    for x in text:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

{call}
"""


def test_an_attribute_of_the_name_of_a_function_is_not_the_function(tmp_path: Path) -> None:
    """`Pieces(self.train)` does not train: the batches are prepared behind the line that makes them."""
    convert(write(tmp_path, pieces=PIECES, entry=GIVEN.format(call="train()")), "entry")
    after = (tmp_path / "entry.py").read_text()
    assert (
        after.index("text = Text()") < after.index("text = accelerator.prepare(") < after.index("\ntrain()")
    )


def test_a_function_that_is_given_by_its_name_is_called(tmp_path: Path) -> None:
    call = "def run(what):\n    what()\n\nrun(train)"
    convert(write(tmp_path, pieces=PIECES, entry=GIVEN.format(call=call)), "entry")
    after = (tmp_path / "entry.py").read_text()
    assert (
        after.index("text = Text()")
        < after.index("text = accelerator.prepare(")
        < after.index("\nrun(train)")
    )
