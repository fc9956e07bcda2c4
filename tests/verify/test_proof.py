"""`migrate --verify` as a user runs it: the project stays as it is, the answer is in the report."""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from crosstrain_migrate.choices import Mode
from crosstrain_migrate.cli.run import Request, run
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.report import html
from crosstrain_migrate.results import Options

from tests.golden.cases import GOLDEN

ARGUMENTS = ("--epochs", "2", "--batch-size", "400", "--test-batch-size", "32", "--log-interval", "2")


def migrate(
    place: Path, *options: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "crosstrain_migrate.cli", *options]
    environ = {**os.environ, **(env or {})}
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False, env=environ)


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def test_a_migration_is_proven_reported_and_only_then_written(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "src").mkdir(parents=True)
    script = project / "src" / "train.py"
    shutil.copy(GOLDEN / "mnist_functions" / "before.py", script)
    before = contents(project)
    options = ("src/train.py", "--verify", "--verify-steps", "8", "--output-format", "json")
    done = migrate(project, *options, "--", *ARGUMENTS, "--save-model")
    assert done.returncode == 0, done.stderr
    assert contents(project) == before
    proof = json.loads(done.stdout)["verify"]
    assert proof["ok"] is True
    assert [one["verdict"] for one in proof["runs"]] == ["identical", "equal", "agree"]
    assert [one["steps"] for one in proof["runs"]] == [8, 8, 4]
    launch = "crosstrain launch --num-processes 2 --split-batches --common-draws train.py"
    assert proof["runs"][1]["launch"] == launch
    _page_shows(proof, script)

    quick = ("--verify-steps", "2", "--verify-processes", "1", "--write")
    done = migrate(project, "src/train.py", "--verify", *quick, "--", *ARGUMENTS)
    assert done.returncode == 0, done.stderr
    assert "identical" in done.stdout and "crosstrain launch --num-processes 1" in done.stdout
    assert set(contents(project)) >= set(before)
    plain = before["src/train.py"].decode()
    assert script.read_text() == migrate_text(script, plain, Options()).after != plain


def _page_shows(proof: dict[str, object], script: Path) -> None:
    outcome = run(Request((script,), Options(), Mode.PREVIEW), migrate_text)
    assert "Verified by training" not in html.render(outcome)
    page = html.render(dataclasses.replace(outcome, proof=proof))
    assert "Verified by training" in page and "<polyline" in page and "--split-batches" in page


def test_what_cannot_be_proven_is_said(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('no training')\n")
    shutil.copy(GOLDEN / "hogwild" / "before.py", tmp_path / "refused.py")
    nothing = migrate(tmp_path, "plain.py", "--verify")
    assert nothing.returncode == 2 and "nothing to verify" in nothing.stderr
    refused = migrate(tmp_path, "refused.py", "--verify")
    assert refused.returncode == 2 and "was not converted" in refused.stderr
    several = migrate(tmp_path, "plain.py", "refused.py", "--verify")
    assert several.returncode == 2 and "one script" in several.stderr


LIBRARY = """
import torch
from torch.utils.data import DataLoader, TensorDataset
def get_data():
    data = TensorDataset(torch.randn(40, 8), torch.arange(40) % 3)
    return DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
"""
ON_A_LIBRARY = """
import torch
import torch.nn.functional as F
from library import get_data
torch.manual_seed(0)
train, test = get_data()
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in train:
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print("done")
"""


def test_assumptions_are_proven_by_what_the_runtime_checked(tmp_path: Path) -> None:
    """Nothing in the script says that the library returns a DataLoader."""
    library, project = tmp_path / "library", tmp_path / "project"
    for folder in (library, project):
        folder.mkdir()
    (library / "library.py").write_text(LIBRARY)
    (project / "train.py").write_text(ON_A_LIBRARY)
    options = ("train.py", "--verify", "--verify-processes", "2", "--output-format", "json")
    done = migrate(project, *options, env={"PYTHONPATH": str(library)})
    report = json.loads(done.stdout)
    assert {check["status"] for check in report["verify"]["checks"] if check["kind"] == "loader"} == {"held"}
    assert done.returncode == 0, done.stderr


def test_arguments_after_the_dashes_are_paths_without_verify(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("print('no training')\n")
    done = migrate(tmp_path, "--check", "--", "plain.py")
    assert done.returncode == 0, done.stderr
    assert "1 untouched" in done.stderr
