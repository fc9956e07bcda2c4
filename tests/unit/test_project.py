"""Scripts of several files: what belongs together, what may change, and what stays as it was."""

import sys
from pathlib import Path
from textwrap import dedent

import pytest
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.files.project import MOST_FILES
from crosstrain_migrate.outcome import Outcome
from crosstrain_migrate.results import Options

LOOP = """
    def fit(model, loader, optimizer, device):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """
SCRIPT = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    {imports}
    def main():
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        model = torch.nn.Linear(2, 1).to(device)
        loader = DataLoader(TensorDataset(torch.ones(8, 2), torch.ones(8, 1)), batch_size=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        {fit}(model, loader, optimizer, device)
    if __name__ == "__main__":
        main()
    """


def script(imports: str, fit: str = "fit") -> str:
    return SCRIPT.format(imports=imports, fit=fit)


TRAIN = script("from loop import fit")
HELPER = f"import torch\nimport torch.nn.functional as F\n{dedent(LOOP)}"


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else dedent(text).lstrip("\n").encode())


def migrate(*paths: Path, follow: bool = True) -> Outcome:
    return run(Request(paths, Options(follow=follow), Mode.WRITE, cache=False), migrate_text)


def changed(outcome: Outcome, folder: Path) -> set[str]:
    return {file.source.target.relative_to(folder).as_posix() for file in outcome.changed}


def said(outcome: Outcome) -> list[str]:
    return [f.reason for file in outcome.files for f in file.result.findings if f.rule == "CT004"]


IMPORTS = [("from loop import fit", "fit"), ("from loop import fit as run_epoch", "run_epoch")]
IMPORTS += [("import loop", "loop.fit"), ("import loop as l", "l.fit"), ("from loop import *", "fit")]
IMPORTS += [("from pkg.loop import fit", "fit"), ("import pkg.loop", "pkg.loop.fit")]
IMPORTS += [("from pkg import loop", "loop.fit"), ("from pkg import fit", "fit"), ("import pkg", "pkg.fit")]


@pytest.mark.parametrize(("imports", "fit"), IMPORTS)
def test_every_form_of_import_leads_to_the_loop(tmp_path: Path, imports: str, fit: str) -> None:
    place = "pkg/loop.py" if "pkg" in imports else "loop.py"
    write(tmp_path, {"train.py": SCRIPT.format(imports=imports, fit=fit), place: HELPER})
    if "pkg" in imports:
        write(tmp_path, {"pkg/__init__.py": "from .loop import fit\n"})
    outcome = migrate(tmp_path / "train.py")
    assert changed(outcome, tmp_path) == {"train.py", place}
    helper, script = (tmp_path / place).read_text(), (tmp_path / "train.py").read_text()
    assert "def fit(model, loader, optimizer, device):\n    accelerator = Accelerator()\n" in helper
    assert "accelerator.backward(loss)" in helper
    assert f"{fit}(model, loader, optimizer, device)" in script
    assert "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in script


OLD = {"train.py": script("import old; from loop import fit"), "loop.py": HELPER}

UNCALLED = TRAIN.replace("from loop", "from .loop").replace('if __name__ == "__main__":\n        main()', "")
ENGINE = "from loop import fit\n\ndef train_all(m, l, o, device):\n    fit(m, l, o, device)\n"
PACKAGE = {"pyproject.toml": "", "pkg/__init__.py": "", "pkg/lib/__init__.py": "", "pkg/lib/loop.py": HELPER}
ADDED = 'import sys; sys.path.append("../common"); from engine import train_all'
DEEP = {"train/first/train.py": TRAIN, "loop.py": HELPER}
FAR = {"setup.py": "", "lib/loop.py": HELPER, "lib/a/b/c/d/e/f/train.py": script("from lib.loop import *")}
EXAMPLE = {"pyproject.toml": "", "examples/requirements.txt": "", "examples/train.py": TRAIN}
EXAMPLE["loop.py"] = HELPER
ABSOLUTE = script("from pkg.lib.loop import fit")
FROM_A = script("from a.loop import fit")
ABOVE = {"run/train.py": script("from nets.loop import fit"), "nets/loop.py": HELPER}
NAMED = script(
    "import argparse; from importlib import import_module; by = argparse.ArgumentParser()\n"
    '    by.add_argument("--by", default="loop"); args = by.parse_args()',
    "import_module(args.by).fit",
)

# What a project holds, what is named, and whether the loop that it imports is found and changed with it.
PROJECTS: dict[str, tuple[dict[str, str], str, bool]] = {
    # Started with `python -m pkg.train`, or from the folder above.
    "relative": (PACKAGE | {"pkg/train.py": script("from .lib.loop import fit")}, "pkg/train.py", True),
    "absolute": (PACKAGE | {"pkg/pkg.py": "", "pkg/train.py": ABSOLUTE}, ".", True),
    # `pip` makes a command of `pkg.__main__:main`, which the file itself never calls.
    "entry point": ({"pkg/__main__.py": UNCALLED, "pkg/loop.py": HELPER}, "pkg/__main__.py", True),
    "no entry point": ({"pkg/begin.py": UNCALLED, "pkg/loop.py": HELPER}, "pkg/begin.py", False),
    "an added folder, and what it imports in turn": (
        {"run/train.py": script(ADDED, "train_all"), "common/engine.py": ENGINE, "common/loop.py": HELPER},
        "run/train.py",
        True,
    ),
    # As packages did in Python 2: only `__init__.py`, since anything else may mean what is installed.
    "names its modules without a dot": (
        {"models/__init__.py": "from build import *", "models/build.py": "from .loop import *"}
        | {"models/loop.py": HELPER, "train.py": script("from models import *")},
        "train.py",
        True,
    ),
    "names its modules without a dot elsewhere": (
        {"models/__init__.py": "from .build import *", "models/build.py": "from loop import *"}
        | {"models/loop.py": HELPER, "train.py": script("from models import *")},
        "train.py",
        False,
    ),
    # `PYTHONPATH=.. python train.py`, where the project's folder has the name that the script imports from.
    "the package": ({"a/train.py": FROM_A, "a/loop.py": HELPER}, "a/train.py", True),
    "no package": ({"b/train.py": FROM_A, "a/loop.py": HELPER}, "b/train.py", False),
    # An archive of a repository has no `.git`; what no sign tells apart is not looked into.
    "a license at the top": (DEEP | {"LICENSE": ""}, "train/first/train.py", True),
    "installed from the top": (DEEP | {"setup.py": ""}, "train/first/train.py", True),
    "installed from far above": (FAR, "lib/a/b/c/d/e/f/train.py", True),
    "data at the top": (DEEP | {"data.csv": ""}, "train/first/train.py", False),
    # `pip install -e .` makes the package known to the examples; a repository in the project is one of its own.
    "examples with requirements": (EXAMPLE, "examples/train.py", True),
    "examples of another repository": (EXAMPLE | {"examples/.git": ""}, "examples/train.py", False),
    "a folder that explains itself": (ABOVE | {"LICENSE": "", "run/README.md": ""}, "run/train.py", True),
    "a project of its own": (ABOVE | {"run/LICENSE": "", "README.md": ""}, "run/train.py", False),
    "data of the module's name": (ABOVE | {"LICENSE": "", "run/nets/table.txt": ""}, "run/train.py", True),
    "another of its name": (ABOVE | {"LICENSE": "", "run/nets/__init__.py": ""}, "run/train.py", False),
    "an option's default": ({"train.py": NAMED, "loop.py": HELPER}, "train.py", True),
    "another's": ({"train.py": NAMED.replace("args.by", "args.of"), "loop.py": HELPER}, "train.py", False),
    "two scripts": ({"train.py": TRAIN, "finetune.py": TRAIN, "loop.py": HELPER}, ".", True),
    "a module that does not parse": (
        {"train.py": script("from loop import fit; import broken"), "loop.py": HELPER, "broken.py": "def (:"},
        "train.py",
        True,
    ),
    "a skipped one": ({"train.py": TRAIN, "loop.py": "# migrate: skip-file\n" + HELPER}, "train.py", False),
    # A checkout of torch itself, a module named like one of the standard library two folders up.
    "a library around it": (
        {"pyproject.toml": "", "torch/__init__.py": "raise SystemExit\n", "random.py": "raise SystemExit\n"}
        | {"examples/train.py": script("import random; from loop import fit"), "examples/loop.py": HELPER},
        "examples/train.py",
        True,
    ),
    "a module that cannot be read": (OLD | {"old.py": "def f(:\n"}, "train.py", True),
    "a module of Python 2": (OLD | {"old.py": "print 'old'\n"}, "train.py", False),
    "a module of Python 3.15": (
        OLD | {"old.py": "type Rows = list\n"},
        "train.py",
        sys.version_info >= (3, 12),
    ),
    "a module of Python 3.6": (OLD | {"old.py": "x.cuda(async=True)\n"}, "train.py", False),
}


BEGINNINGS = {
    "a try": ("try:\n        main()\n    except KeyboardInterrupt:\n        pass", True),
    "one of several": (
        "kind = 'a'\n    if kind == 'b':\n        kind = 'c'\n    else:\n\n        main()",
        True,
    ),
    "a function": ("def start():\n        main()", False),
    "an import": ("try:\n        import apex\n    except ImportError:\n        apex = None", False),
}


@pytest.mark.parametrize(("begins", "is_run"), BEGINNINGS.values(), ids=BEGINNINGS)
def test_a_script_may_begin_in_a_block(tmp_path: Path, begins: str, is_run: bool) -> None:
    text = TRAIN.replace('if __name__ == "__main__":\n        main()', begins)
    write(tmp_path, {"train.py": text, "loop.py": HELPER})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == ({"train.py", "loop.py"} if is_run else set())


@pytest.mark.parametrize(("files", "given", "is_found"), PROJECTS.values(), ids=PROJECTS)
def test_the_modules_of_a_script(tmp_path: Path, files: dict[str, str], given: str, is_found: bool) -> None:
    write(tmp_path, files)
    ours = {name for name, text in files.items() if text.endswith(HELPER) or "torch.optim" in text}
    assert changed(migrate(tmp_path / given), tmp_path) == (ours if is_found else set())
    assert not migrate(tmp_path / given).changed


@pytest.mark.parametrize(
    ("imports", "fit", "is_found"),
    [("import loop, library.many", "loop.fit", True), ("import library.many", "library.many.fit", False)],
)
def test_a_large_library_hides_no_loop(tmp_path: Path, imports: str, fit: str, is_found: bool) -> None:
    """Of a project with too many files those count to which the fewest imports lead."""
    names = [f"part{number}" for number in range(MOST_FILES)]
    every = "".join(f"from library import {name}\n" for name in names)
    write(tmp_path, {f"library/{name}.py": "import torch\n" for name in names})
    write(tmp_path, {"library/__init__.py": "", "library/many.py": f"{every}from loop import fit\n"})
    write(tmp_path, {"train.py": SCRIPT.format(imports=imports, fit=fit), "loop.py": HELPER})
    write(tmp_path, {"requirements.txt": ""})
    both = {"train.py", "loop.py"}
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == (both if is_found else set())


def test_what_a_computed_name_may_mean_is_left_out_first(tmp_path: Path) -> None:
    half = MOST_FILES // 2
    write(tmp_path, {f"step{n}.py": f"from step{n + 1} import fit" for n in range(half)})
    write(tmp_path, {f"step{half}.py": HELPER} | {f"nets/net{n}.py": "import torch" for n in range(half + 5)})
    imports = 'import importlib, step0; find = lambda name: importlib.import_module("nets." + name)'
    write(tmp_path, {"train.py": SCRIPT.format(imports=imports, fit="step0.fit")})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == {"train.py", f"step{half}.py"}


def test_no_follow_allows_what_stays_in_the_file(tmp_path: Path) -> None:
    """The imports are still read: what a model does is known."""
    write(tmp_path, {"other.py": TRAIN, "loop.py": HELPER})
    outcome = migrate(tmp_path / "other.py", follow=False)
    assert not outcome.changed
    assert "--no-follow" in said(outcome)[0]
    model = "import torch\n\nclass Net(torch.nn.Linear):\n    pass\n"
    script = dedent(SCRIPT.format(imports="from net import Net; import torch.nn.functional as F", fit="fit"))
    script = script.replace("torch.nn.Linear(", "Net(").replace("def main", f"{dedent(LOOP)}\ndef main")
    write(tmp_path, {"train.py": script, "net.py": model})
    assert changed(migrate(tmp_path / "train.py", follow=False), tmp_path) == {"train.py"}


def test_scripts_that_need_different_changes_of_one_file(tmp_path: Path) -> None:
    """The first one's is made, and the second is left as it is, with the reason."""
    summed = HELPER.replace("F.mse_loss(model(x), y)", "loss_fn(model(x), y)").replace(
        "optimizer, device", "optimizer, device, loss_fn"
    )
    total = TRAIN.replace("optimizer, device)", 'optimizer, device, torch.nn.MSELoss(reduction="sum"))')
    mean = TRAIN.replace("optimizer, device)", "optimizer, device, torch.nn.MSELoss())")
    write(tmp_path, {"a.py": mean, "b.py": total, "loop.py": summed})
    outcome = migrate(tmp_path)
    assert changed(outcome, tmp_path) == {"a.py", "loop.py"}
    (reason,) = said(outcome)
    assert "loop.py would have to change differently" in reason


def test_a_script_whose_steps_are_of_an_old_python_is_told_so(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN, "loop.py": HELPER + "x.cuda(async=True)\n"})
    (error,) = migrate(tmp_path / "train.py").errors
    assert "imports" in error.reason and "loop.py" in error.reason and "Python 3.7" in error.reason
