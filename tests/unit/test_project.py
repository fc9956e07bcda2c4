"""Scripts of several files: what belongs together, what may change, and what stays as it was."""

from __future__ import annotations

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
TRAIN = SCRIPT.format(imports="from loop import fit", fit="fit")
HELPER = f"import torch\nimport torch.nn.functional as F\n{dedent(LOOP)}"


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = text if isinstance(text, bytes) else dedent(text).lstrip("\n").encode()
        path.write_bytes(data)


def migrate(*paths: Path, follow: bool = True) -> Outcome:
    return run(Request(paths, Options(follow=follow), Mode.WRITE, cache=False), migrate_text)


def changed(outcome: Outcome, folder: Path) -> set[str]:
    return {file.source.target.relative_to(folder).as_posix() for file in outcome.changed}


def said(outcome: Outcome) -> list[str]:
    return [f.reason for file in outcome.files for f in file.result.findings if f.rule == "CT004"]


@pytest.mark.parametrize(
    ("imports", "fit"),
    [
        ("from loop import fit", "fit"),
        ("from loop import fit as run_epoch", "run_epoch"),
        ("import loop", "loop.fit"),
        ("import loop as l", "l.fit"),
        ("from loop import *", "fit"),
        ("from pkg.loop import fit", "fit"),
        ("import pkg.loop", "pkg.loop.fit"),
        ("from pkg import loop", "loop.fit"),
        ("from pkg import fit", "fit"),
        ("import pkg", "pkg.fit"),
    ],
)
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


@pytest.mark.parametrize("imports", ["from .lib.loop import fit", "from pkg.lib.loop import fit"])
@pytest.mark.parametrize("given", [".", "pkg/train.py tools/finetune.py"])
def test_a_script_inside_a_package(tmp_path: Path, imports: str, given: str) -> None:
    """Started with `python -m pkg.train`, or from the folder above."""
    write(
        tmp_path,
        {
            "pyproject.toml": "",
            "pkg/__init__.py": "",
            "pkg/train.py": SCRIPT.format(imports=imports, fit="fit"),
            "pkg/lib/__init__.py": "",
            "pkg/lib/loop.py": HELPER,
            "tools/finetune.py": SCRIPT.format(imports="from pkg.lib.loop import fit", fit="fit"),
        },
    )
    outcome = migrate(*(tmp_path / name for name in given.split()))
    assert changed(outcome, tmp_path) == {"pkg/train.py", "pkg/lib/loop.py", "tools/finetune.py"}
    assert outcome.untouched == 2, "each file counts once"


@pytest.mark.parametrize(("name", "is_run"), [("__main__", True), ("begin", False)])
def test_a_package_may_be_begun_by_an_entry_point(tmp_path: Path, name: str, is_run: bool) -> None:
    """`pip` makes a command of `package.__main__:main`, which the file itself never calls."""
    main = TRAIN.replace("from loop", "from .loop").replace('if __name__ == "__main__":\n        main()', "")
    write(tmp_path, {"package/__init__.py": "", f"package/{name}.py": main, "package/loop.py": HELPER})
    found = changed(migrate(tmp_path / "package" / f"{name}.py"), tmp_path)
    assert (f"package/{name}.py" in found) is is_run


def test_what_a_module_imports_is_followed(tmp_path: Path) -> None:
    engine = "from loop import fit\n\ndef train_all(model, loader, optimizer, device):\n    fit(model, loader, optimizer, device)\n"
    script = SCRIPT.format(imports="from engine import train_all", fit="train_all")
    write(tmp_path, {"train.py": script, "engine.py": engine, "loop.py": HELPER})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == {"train.py", "loop.py"}
    assert (tmp_path / "engine.py").read_text() == engine


@pytest.mark.parametrize(
    ("imports", "fit", "is_found"),
    [("import loop, library.many", "loop.fit", True), ("import library.many", "library.many.fit", False)],
)
def test_a_large_library_does_not_hide_the_loop(
    tmp_path: Path, imports: str, fit: str, is_found: bool
) -> None:
    """Of a project with too many files those count to which the fewest imports lead."""
    names = [f"part{number}" for number in range(MOST_FILES)]
    every = "".join(f"from library import {name}\n" for name in names)
    write(tmp_path, {f"library/{name}.py": "import torch\n" for name in names})
    write(tmp_path, {"library/__init__.py": "", "library/many.py": f"{every}from loop import fit\n"})
    write(tmp_path, {"train.py": SCRIPT.format(imports=imports, fit=fit), "loop.py": HELPER})
    write(tmp_path, {"requirements.txt": ""})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == (
        {"train.py", "loop.py"} if is_found else set()
    )


def test_what_a_computed_name_may_mean_is_left_out_first(tmp_path: Path) -> None:
    half = MOST_FILES // 2
    write(tmp_path, {f"step{n}.py": f"from step{n + 1} import fit" for n in range(half)})
    write(tmp_path, {f"step{half}.py": HELPER} | {f"nets/net{n}.py": "import torch" for n in range(half + 5)})
    imports = 'import importlib, step0; find = lambda name: importlib.import_module("nets." + name)'
    write(tmp_path, {"train.py": SCRIPT.format(imports=imports, fit="step0.fit")})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == {"train.py", f"step{half}.py"}


@pytest.mark.parametrize(("sign", "is_found"), [("LICENSE", True), ("setup.py", True), ("data.csv", False)])
def test_the_top_of_a_project_is_where_its_license_lies(tmp_path: Path, sign: str, is_found: bool) -> None:
    """An archive of a repository has no `.git`; what no sign tells apart is not looked into."""
    write(tmp_path, {"train/first/train.py": TRAIN, "loop.py": HELPER, sign: ""})
    found = changed(migrate(tmp_path / "train/first/train.py"), tmp_path)
    assert found == ({"train/first/train.py", "loop.py"} if is_found else set())


@pytest.mark.parametrize(("signs", "is_found"), [((), True), (("examples/.git",), False)])
def test_a_folder_with_requirements_of_its_own_is_part_of_what_is_installed(
    tmp_path: Path, signs: tuple[str, ...], is_found: bool
) -> None:
    """`pip install -e .` makes the package known to the examples; a repository in the project is one of its own."""
    write(tmp_path, {"pyproject.toml": "", "examples/requirements.txt": "", "loop.py": HELPER})
    write(tmp_path, {"examples/train.py": TRAIN, **dict.fromkeys(signs, "")})
    found = changed(migrate(tmp_path / "examples/train.py"), tmp_path)
    assert found == ({"examples/train.py", "loop.py"} if is_found else set())


def test_a_shared_module_changes_once_for_both_scripts(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN, "finetune.py": TRAIN, "loop.py": HELPER})
    outcome = migrate(tmp_path)
    assert changed(outcome, tmp_path) == {"train.py", "finetune.py", "loop.py"}
    assert not migrate(tmp_path).changed


def test_no_follow_changes_no_other_file(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN, "loop.py": HELPER})
    outcome = migrate(tmp_path / "train.py", follow=False)
    assert not outcome.changed
    assert "--no-follow" in said(outcome)[0]


def test_no_follow_allows_what_stays_in_the_file(tmp_path: Path) -> None:
    """The imports are still read: what a model does is known."""
    model = "import torch\n\nclass Net(torch.nn.Linear):\n    pass\n"
    script = dedent(SCRIPT.format(imports="from net import Net; import torch.nn.functional as F", fit="fit"))
    script = script.replace("torch.nn.Linear(2, 1)", "Net(2, 1)").replace(
        "def main", f"{dedent(LOOP)}\ndef main"
    )
    write(tmp_path, {"train.py": script, "net.py": model})
    assert changed(migrate(tmp_path / "train.py", follow=False), tmp_path) == {"train.py"}


def test_each_file_keeps_its_encoding_and_line_ends(tmp_path: Path) -> None:
    helper = (
        ("# -*- coding: latin-1 -*-\n# déjà vu\n" + HELPER.rstrip("\n"))
        .replace("\n", "\r\n")
        .encode("latin-1")
    )
    script = b"\xef\xbb\xbf" + dedent(TRAIN).lstrip("\n").encode()
    write(tmp_path, {"train.py": script, "loop.py": helper})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == {"train.py", "loop.py"}
    after = (tmp_path / "loop.py").read_bytes()
    assert after.count(b"\r\n") == after.count(b"\n") and not after.endswith(b"\n")
    assert "# déjà vu".encode("latin-1") in after
    assert (tmp_path / "train.py").read_bytes().startswith(b"\xef\xbb\xbf")


def test_modules_that_cannot_be_read_are_left_out(tmp_path: Path) -> None:
    script = TRAIN.replace("from loop import fit", "from loop import fit\n    import broken")
    write(tmp_path, {"train.py": script, "loop.py": HELPER, "broken.py": "def (:\n"})
    assert changed(migrate(tmp_path / "train.py"), tmp_path) == {"train.py", "loop.py"}


def test_a_skipped_module_is_not_touched(tmp_path: Path) -> None:
    write(tmp_path, {"train.py": TRAIN, "loop.py": "# migrate: skip-file\n" + HELPER})
    assert not migrate(tmp_path / "train.py").changed


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


def test_a_library_around_the_script_is_not_its_project(tmp_path: Path) -> None:
    """A checkout of torch itself, a module named like one of the standard library two folders up."""
    write(
        tmp_path,
        {
            "pyproject.toml": "",
            "torch/__init__.py": "raise SystemExit\n",
            "random.py": "raise SystemExit\n",
            "examples/train.py": TRAIN.replace("import torch\n", "import random\n    import torch\n", 1),
            "examples/loop.py": HELPER,
        },
    )
    outcome = migrate(tmp_path / "examples" / "train.py")
    assert changed(outcome, tmp_path) == {"examples/train.py", "examples/loop.py"}
