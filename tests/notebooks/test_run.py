"""Migrated notebooks in a real kernel: what they print on one and on two processes is what the originals print."""

import json
import re
from pathlib import Path

import pytest
from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from . import notebooks
from .support import notebook
from .test_launch import EVALUATED

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")

ALL = {
    "globals": (notebooks.GLOBALS, ""),
    "flat": (notebooks.FLAT, ""),
    "evaluated": (EVALUATED, ""),
    "in a module": notebooks.with_module(),
}


def on_two_processes(source: str) -> str:
    """Two processes share each batch, so that they compute what one does."""
    source = re.sub(r"(notebook_launcher\(.*)\)$", r"\1, num_processes=2)", source, flags=re.M)
    source = re.sub(
        r"(notebook_launcher\(\n(?:    .*\n)*    .*?),?\n\)$",
        r"\1,\n    num_processes=2)",
        source,
        flags=re.M,
    )
    return source.replace(" Accelerator()", " Accelerator(split_batches=True)")


def code(path: Path) -> list[str]:
    cells = json.loads(path.read_bytes())["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


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
    """A module of the notebook's own changes with it."""
    text, module = ALL[name]
    path = tmp_path / "train.ipynb"
    path.write_bytes(notebook(text))
    (tmp_path / "steps.py").write_text(module)
    expected = told(executed(code(path), tmp_path))
    outcome = run(Request((path,), Options(), Mode.WRITE, cache=False), migrate_text)
    assert [one.source.path.name for one in outcome.changed] == ["steps.py"] * bool(module) + ["train.ipynb"]
    nbformat.validate(json.loads(path.read_bytes()))
    alone = code(path)
    two = [on_two_processes(source) for source in alone]
    launches = "".join(alone).count("= notebook_launcher(") + "".join(alone).count("\nnotebook_launcher(")
    assert "".join(two).count("num_processes=2") == launches
    printed = executed([*alone, *two], tmp_path)
    of_one, of_two = told(printed[: len(alone)]), told(printed[len(alone) :])
    assert expected
    assert of_one == expected
    assert numbers(of_two) == pytest.approx(numbers(expected), abs=2e-4)
