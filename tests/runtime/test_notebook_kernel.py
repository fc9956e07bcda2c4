"""A real notebook, run cell by cell in a real kernel."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
pytest.importorskip("ipykernel", reason="ipykernel is not installed")
pytestmark = pytest.mark.slow  # each of them waits for all cells

CELLS = [
    """
import json, os
import torch
from crosstrain import Accelerator, debug_launcher, notebook_launcher

accelerator = Accelerator()  # a cell that tries things in one process
losses = []

def train(rows, fail=False):
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    torch.nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.arange(float(rows)).reshape(-1, 1), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        if fail and accelerator.process_index == 1:
            raise ValueError("no such row")
        accelerator.backward(model(batch).mean())
        optimizer.step()
        optimizer.zero_grad()
    seen = accelerator.gather(torch.tensor([accelerator.process_index])).tolist()
    print(f"rank {accelerator.process_index} done", flush=True)
    return {"ranks": seen, "weight": model.weight.item(), "pid": os.getpid()}
""",
    "print(json.dumps([debug_launcher(train, (8,)), os.getpid()]))",
    "debug_launcher(train, (8, True))",
    "print(json.dumps([notebook_launcher(train, (8,), num_processes=1), os.getpid(), accelerator.num_processes]))",
    "print(json.dumps([notebook_launcher(train, (8,), num_processes=2, max_restarts=1), os.getpid()]))",
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    folder = tmp_path_factory.mktemp("notebook")
    client = nbclient.NotebookClient(
        notebook,
        timeout=300,
        allow_errors=True,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    nbformat.write(notebook, Path(folder) / "ran.ipynb")
    return [cell.outputs for cell in notebook.cells]


def printed(cell: list[Any]) -> str:
    assert not [output for output in cell if output.output_type == "error"], cell
    return "".join(output.text for output in cell if output.get("name") == "stdout")


def result(cell: list[Any]) -> list[Any]:
    # Two processes share the cell's output: a line's end may come after what the other one prints.
    found = re.search(r"\[.*\]", printed(cell))
    assert found is not None, cell
    value: list[Any] = json.loads(found[0])
    return value


def test_two_processes_train_a_function_of_the_notebook(outputs: list[list[Any]]) -> None:
    of_rank_0, kernel = result(outputs[1])
    assert of_rank_0["ranks"] == [0, 1]
    assert of_rank_0["weight"] == pytest.approx(1 - 0.1 * (1.5 + 5.5))
    assert of_rank_0["pid"] != kernel
    again, _ = result(outputs[4])
    assert (again["ranks"], again["weight"]) == (of_rank_0["ranks"], of_rank_0["weight"])


def test_failure_is_the_cells_error_and_the_kernel_lives(outputs: list[list[Any]]) -> None:
    (error,) = [output for output in outputs[2] if output.output_type == "error"]
    assert error.ename == "LaunchError"
    assert "ValueError: no such row" in error.evalue
    assert "rank 1 of 2 failed with the error above" in error.evalue


def test_one_process_is_the_kernel_itself(outputs: list[list[Any]]) -> None:
    alone, kernel, processes = result(outputs[3])
    assert (alone["ranks"], alone["pid"], processes) == ([0], kernel, 1)
