"""How much a run does, in reads, parses and questions to the file system: never in seconds."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import pytest
from crosstrain_migrate.files import import_graph, may_train
from crosstrain_migrate.files.progress import Progress
from crosstrain_migrate.files.project import MOST_FILES, units
from crosstrain_migrate.files.reading import read

from tests.unit.test_project import SCRIPT, write

MODULES = 2 * MOST_FILES


def tree(folder: Path, scripts: int, modules: int = MODULES) -> None:
    """Scripts that import the first of many modules, which import one another."""
    names = [f"m{number}" for number in range(modules)]
    every = "".join(f"from parts import {name}\n" for name in names)
    write(folder, {f"parts/{name}.py": f"import torch\n{every}" for name in names})
    write(folder, {"parts/__init__.py": "", "requirements.txt": ""})
    train = SCRIPT.format(imports="from parts import m0", fit="m0.fit")
    write(folder, {f"train{number}.py": train for number in range(scripts)})


class Counted:
    """Counts the calls of a function by their first argument."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, place: object, name: str) -> None:
        self.calls: Counter[str] = Counter()
        inner = getattr(place, name)

        def counted(first: object, *rest: object, **more: object) -> object:
            self.calls[str(first)] += 1
            return inner(first, *rest, **more)

        monkeypatch.setattr(place, name, counted)


def test_each_file_is_parsed_read_and_looked_up_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree(tmp_path, scripts=12)
    listed = [read(path) for path in sorted(tmp_path.glob("train*.py"))]
    reads = Counted(monkeypatch, import_graph, "read")
    parses = Counted(monkeypatch, import_graph, "_parses")
    searches = Counted(monkeypatch, import_graph, "_imports")
    questions = Counted(monkeypatch, import_graph, "_mode")
    units(listed)
    assert reads.calls.total() == len(reads.calls) <= MOST_FILES + 2
    assert set(questions.calls.values()) == {1}
    assert parses.calls.total() <= MOST_FILES + 2
    assert searches.calls.total() <= len(listed) + MOST_FILES + 2


@pytest.mark.parametrize(
    ("text", "trains"),
    [
        ("import torch\nloss.backward()", True),
        ("import torch\nloss\\\n  . \n backward (", True),
        ("import torch\nbackward()", False),
        ("import torch\nloss.backwards()", False),
        ("import torch\ngo = loss.backward\ngo()", True),
        ("from torch import autograd\nautograd.grad(loss)", True),
        ("import torch\nmy_autograd, autograd.grad", True),
        ("import torch\nautograd # grad", False),
        ("import torch\nautograd.gradient", False),
        ("loss.backward()", False),
        ("import fastai", True),
        ("x = 1\n\tfrom ray import train", True),
        ("# import ray", False),
    ],
)
def test_the_cheap_test_says_what_may_train(text: str, trains: bool) -> None:
    assert may_train.may_train(text.encode()) is trains


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_counts_on_a_terminal_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(100))
    monkeypatch.setattr("crosstrain_migrate.files.progress.time.monotonic", lambda: next(now))
    stream = Terminal()
    progress = Progress(stream)
    assert list(progress.over("abc", "{} of 3 read")) == ["a", "b", "c"]
    progress.clear()
    shown = stream.getvalue().split("\r\x1b[K")
    assert shown == ["", "0 of 3 read", "1 of 3 read", "2 of 3 read", ""]


def test_progress_is_silent_in_the_first_moment_and_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, stream = Terminal(), io.StringIO()
    progress = Progress(quick)
    progress.say("too early")
    progress.clear()
    monkeypatch.setattr("crosstrain_migrate.files.progress._AFTER", 0)
    Progress(stream).say("no terminal")
    assert quick.getvalue() == stream.getvalue() == ""
