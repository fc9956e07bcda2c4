"""Migrated notebooks in a real kernel: what they print on one and on two processes is what the originals print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from . import notebooks
from .support import after, document, migrate, notebook, read
from .test_launch import EVALUATED

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

ALL = {"globals": notebooks.GLOBALS, "flat": notebooks.FLAT, "evaluated": EVALUATED}


def on_two_processes(source: str) -> str:
    """Two processes share each batch, so that they compute what one does."""
    source = re.sub(r"(notebook_launcher\(.*)\)$", r"\1, num_processes=2)", source, flags=re.MULTILINE)
    source = re.sub(
        r"(notebook_launcher\(\n(?:    .*\n)+)\)$", r"\1    num_processes=2)", source, flags=re.MULTILINE
    )
    return source.replace(
        "    accelerator = Accelerator()", "    accelerator = Accelerator(split_batches=True)"
    )


def executed(sources: list[str], folder: Path) -> list[str]:
    """What each code cell prints, all run one after the other in one kernel."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    resources = {"metadata": {"path": str(folder)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    return ["".join(o.text for o in cell.outputs if o.get("name") == "stdout") for cell in notebook.cells]


def told(printed: list[str]) -> list[str]:
    """The lines that training and evaluation print."""
    lines = "".join(printed).splitlines()
    return [line for line in lines if line.startswith(("epoch", "losses", "correct", "history", "points.pt"))]


def numbers(lines: list[str]) -> list[float]:
    return [float(one) for line in lines for one in re.findall(r"\d+\.?\d*", line)]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.mark.parametrize("name", ALL)
def test_one_and_two_processes_train_as_the_original(name: str, tmp_path: Path) -> None:
    text = ALL[name]
    original = ["".join(cell["source"]) for cell in document(text)["cells"] if cell["cell_type"] == "code"]
    result = migrate(text)
    assert not result.refused, result.findings
    nbformat.validate(json.loads(read(text).encode(result.after)))
    alone = list(after(result).values())
    two = [on_two_processes(source) for source in alone]
    launches = "".join(alone).count("= notebook_launcher(") + "".join(alone).count("\nnotebook_launcher(")
    assert "".join(two).count("num_processes=2") == launches
    # The migrated cells come first: nothing of the original's is there to help them.
    printed = executed([*alone, *two, *original], tmp_path)
    count = len(original)
    of_one, of_two, expected = (told(printed[n * count : (n + 1) * count]) for n in range(3))
    assert expected
    assert of_one == expected
    assert numbers(of_two) == pytest.approx(numbers(expected), abs=2e-4)


def test_training_in_a_module_of_its_own(tmp_path: Path) -> None:
    """The module changes with the notebook, and both train as before."""
    text, module = notebooks.with_module()
    printed = []
    for name in ("before", "after"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "steps.py").write_text(module)
        path = folder / "train.ipynb"
        path.write_bytes(notebook(text))
        if name == "after":
            outcome = run(Request((path,), Options(), Mode.WRITE, cache=False), migrate_text)
            assert [file.source.path.name for file in outcome.changed] == ["steps.py", "train.ipynb"]
        cells = json.loads(path.read_bytes())["cells"]
        alone = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        two = [on_two_processes(source) for source in alone] if name == "after" else []
        printed.append(executed([*alone, *two], folder))
    count = len(printed[0])
    expected = told(printed[0])
    assert told(printed[1][:count]) == expected
    assert numbers(told(printed[1][count:])) == pytest.approx(numbers(expected), abs=2e-4)
