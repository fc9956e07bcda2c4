"""How much a run does, in reads, parses and questions to the file system: never in seconds."""

import io
from collections import Counter
from pathlib import Path

import pytest
from crosstrain_migrate.files import import_graph, may_train
from crosstrain_migrate.files.progress import Progress
from crosstrain_migrate.files.project import MOST_FILES, units
from crosstrain_migrate.files.reading import read

from tests.unit.test_project import script, write


def test_each_file_is_parsed_read_and_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of scripts that import the first of many modules, which import one another."""
    names = [f"m{number}" for number in range(2 * MOST_FILES)]
    every = "".join(f"from parts import {name}\n" for name in names)
    write(tmp_path, {f"parts/{name}.py": f"import torch\n{every}" for name in names})
    write(tmp_path, {"parts/__init__.py": "", "requirements.txt": ""})
    write(tmp_path, {f"train{number}.py": script("from parts import m0", "m0.fit") for number in range(12)})
    listed = [read(path) for path in sorted(tmp_path.glob("train*.py"))]
    calls: dict[str, Counter[str]] = {name: Counter() for name in ("read", "_parses", "_imports", "_mode")}

    def count(name: str) -> None:
        inner = getattr(import_graph, name)

        def counted(first: object, *rest: object, **more: object) -> object:
            calls[name][str(first)] += 1
            return inner(first, *rest, **more)

        monkeypatch.setattr(import_graph, name, counted)

    for name in calls:
        count(name)
    units(listed)
    assert calls["read"].total() == len(calls["read"]) <= MOST_FILES + 2
    assert set(calls["_mode"].values()) == {1}
    assert calls["_parses"].total() <= MOST_FILES + 2
    assert calls["_imports"].total() <= len(listed) + MOST_FILES + 2


TEXTS = [("import torch\nloss.backward()", True), ("import torch\nloss\\\n  . \n backward (", True)]
TEXTS += [("import torch\nbackward()", False), ("import torch\nloss.backwards()", False)]
TEXTS += [("import torch\ngo = loss.backward\ngo()", True)]
TEXTS += [("from torch import autograd\nautograd.grad(loss)", True)]
TEXTS += [("import torch\nmy_autograd, autograd.grad", True), ("import torch\nautograd # grad", False)]
TEXTS += [("import torch\nautograd.gradient", False), ("loss.backward()", False), ("import fastai", True)]
TEXTS += [("x = 1\n\tfrom ray import train", True), ("# import ray", False)]


@pytest.mark.parametrize(("text", "trains"), TEXTS)
def test_the_cheap_test_says_what_may_train(text: str, trains: bool) -> None:
    assert may_train.may_train(text.encode()) is trains


def test_what_a_package_only_registers() -> None:
    for text, name, registers in (
        ("main()", "train.py", False),
        ("from .ops import wrap\nwrap(add)", "lists.py", True),
        ("from .loop import main\nmain()", "run.py", False),
        ("from . import a\nif __name__ == '__main__': a.fit()", "__init__.py", False),
        ("register()", "__init__.py", True),
    ):
        assert import_graph.only_registers(text.encode(), name) is registers, text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_counts_on_a_terminal_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first moment, and in a file, it is silent."""
    quick, stream, file = Terminal(), Terminal(), io.StringIO()
    progress = Progress(quick)
    progress.say("too early")
    progress.clear()
    now = iter(range(100))
    monkeypatch.setattr("crosstrain_migrate.files.progress.time.monotonic", lambda: next(now))
    progress = Progress(stream)
    assert list(progress.over("abc", "{} of 3 read")) == ["a", "b", "c"]
    progress.clear()
    assert stream.getvalue().split("\r\x1b[K") == ["", "0 of 3 read", "1 of 3 read", "2 of 3 read", ""]
    Progress(file).say("no terminal")
    assert quick.getvalue() == file.getvalue() == ""
