"""`migrate --verify` and `crosstrain verify` of notebooks: what a launch starts, and what comes back from it."""

import json
from pathlib import Path

import pytest
from crosstrain_verify import Report, verify
from crosstrain_verify.running.notebook_cells import cells, launches, plain

from tests.notebooks import notebooks
from tests.notebooks.support import document, notebook
from tests.verify.test_proof import migrate

STAGES = """\
# %%
%matplotlib inline
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
{imports}
torch.manual_seed(5)
files = !ls
display(files)
# %%
points = torch.randn(36, 4)
loader = DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=6, shuffle=True)
model = nn.Linear(4, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
# %%
{first}
# %%
print("losses", [round(loss, 3) for loss in losses], round(model.weight.sum().item(), 3))
# %%
raise ValueError("as its author has seen it")
# %%
{second}
# %%
print("weights", round(model.weight.sum().item(), 3), losses[-1] < losses[0])
"""
LOOP = """\
losses = []
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        {backward}
        optimizer.step()
    losses.append({loss})
"""
PLAIN = LOOP.format(backward="loss.backward()", loss="loss.item()")
BEFORE = STAGES.format(imports="", first=f"%%time\n{PLAIN}", second=PLAIN)
REDUCED = "accelerator.reduce(loss, reduction='mean')"
INSIDE = LOOP.format(backward="accelerator.backward(loss)", loss=f"{REDUCED}.item()")


def launch(*, state: bool = True, loss: str = "") -> str:
    """A training that gives back its list, and its model's and its optimizer's state."""
    body = INSIDE.replace(REDUCED, loss) if loss else INSIDE
    inner = "".join(f"    {line}\n" for line in body.splitlines())
    back = "model_state, optimizer_state, losses = " if state else "*_, losses = "
    load = "model.load_state_dict(model_state)\noptimizer.load_state_dict(optimizer_state)\n" if state else ""
    return (
        "def training(model, optimizer, loader):\n"
        "    accelerator = Accelerator()\n"
        "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)\n"
        f"{inner}"
        "    return accelerator.get_state_dict(model), optimizer.state_dict(), losses\n"
        f"{back}notebook_launcher(training, (model, optimizer, loader))\n{load}"
    )


def after(first: str, second: str) -> str:
    imports = "from crosstrain import Accelerator, notebook_launcher"
    return STAGES.format(imports=imports, first=first, second=second)


def verified(tmp_path: Path, migrated: str, **options: object) -> Report:
    """The notebooks as they were saved: one cell raised, and its author went on."""
    paths = []
    for name, text in (("before", BEFORE), ("after", migrated)):
        made = document(text)
        for cell in made["cells"]:
            if cell["source"] and cell["source"][0].startswith("raise"):
                cell["outputs"] = [{"output_type": "error", "ename": "E", "evalue": "", "traceback": []}]
        paths.append(tmp_path / f"{name}.ipynb")
        paths[-1].write_text(json.dumps(made))
    return verify(*paths, timeout=300, **options)  # type: ignore[arg-type]


def test_two_launches_and_what_comes_back_from_them(tmp_path: Path) -> None:
    """The second training goes on with the weights, the optimizer and the random numbers of the first."""
    report = verified(tmp_path, after(launch(), launch()))
    found = [(run.verdict.value, run.steps) for run in report.runs]
    assert found == [("identical", 24), ("equal", 24)], report.runs
    assert "num_processes=2" in report.runs[1].launch
    assert {check.kind for check in report.checks} >= {"loader", "mean"}
    assert all(":cell " in check.file for check in report.checks)


def test_a_state_that_does_not_come_back_is_seen(tmp_path: Path) -> None:
    """In one process the notebook's own model is trained; in several another one is."""
    report = verified(tmp_path, after(launch(state=False), launch(state=False)))
    assert [run.verdict.value for run in report.runs] == ["identical", "different"]


def test_a_rank_that_fails_is_told_with_its_cell(tmp_path: Path) -> None:
    made = "    accelerator = Accelerator()\n"
    broken = launch().replace(made, f"{made}    1 / accelerator.process_index\n")
    (run,) = verified(tmp_path, after(broken, launch()), processes=[2]).runs
    assert run.verdict.value == "failed"
    assert "ZeroDivisionError" in run.error
    assert 'after.ipynb:cell 3", line 3, in training' in run.error


@pytest.mark.parametrize(
    ("skip", "verdicts"),
    [("", ["identical", "equal", "agree"]), ("  # migrate: skip CT801", ["identical"])],
    ids=["launched", "in its own process"],
)
def test_a_migrated_notebook_is_proven(tmp_path: Path, skip: str, verdicts: list[str]) -> None:
    head = "for epoch in range(3):"
    (tmp_path / "train.ipynb").write_bytes(notebook(notebooks.FLAT.replace(head, head + skip)))
    done = migrate(tmp_path, "train.ipynb", "--verify", "--verify-steps", "8", "--output-format", "json")
    assert done.returncode == 0, done.stderr
    proof = json.loads(done.stdout)["verify"]
    assert [run["verdict"] for run in proof["runs"]] == verdicts
    assert ("trains in its own process" in " ".join(proof["notes"])) is bool(skip)


LINES = [("%matplotlib inline\nx = 1", "pass\nx = 1")]
LINES += [("if x:\n    !ls \\\n  -l\n    y = 2", "if x:\n    pass\n\n    y = 2")]
LINES += [("files = !ls", "files = []"), ("%time x = train(3)", "x = train(3)"), ("%%time\nx = 1", "\nx = 1")]
LINES += [("len?", "pass"), ("x = 5 %3", "x = 5 %3"), ("s = '''\n%time\n'''", "s = '''\n%time\n'''")]


@pytest.mark.parametrize(("source", "expected"), LINES)
def test_lines_of_ipython_are_left_out_and_others_stay_where_they_are(source: str, expected: str) -> None:
    assert plain(source) == expected


def test_which_cells_run(tmp_path: Path) -> None:
    path = tmp_path / "a.ipynb"
    path.write_bytes(notebook("# %% [markdown]\nx\n# %%\n%%bash\nls\n# %%\nx = 1\n# %%\n%%capture\ny = 2\n"))
    assert [(cell.number, cell.source) for cell in cells(path)] == [(3, "x = 1"), (4, "\ny = 2")]
    assert not launches(path)
