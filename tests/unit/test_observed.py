"""Converting with what an observed run has seen, as the command does it: facts files, grades, contradictions."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from crosstrain_migrate.cli import app
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import FileResult, Observed, Options, Severity
from typer.testing import CliRunner

SCRIPT = """\
import torch
import torch.nn.functional as F
from zoo import build, engine
net = build("net")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = build("loader")
for x, y in loader:
    loss = engine.loss(net)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def place(words: str, line: str, text: str = SCRIPT) -> list[Any]:
    """Where an expression stands, in the first line that has these words."""
    number, found = next((n, one) for n, one in enumerate(text.split("\n"), 1) if line in one)
    start = found.index(words)
    return ["train.py", number, start, number, start + len(words)]


def document(kind: str = "", text: str = SCRIPT, **more: Any) -> str:
    """A facts file. kind: what the loss was seen to be."""
    at = place("loss", "loss.backward", text)
    run = {"arguments": ["--epochs", "1"], "processes": 1, "steps": 4, "seconds": 1.0}
    run |= {"data": "real", "notes": []}
    facts: dict[str, Any] = {"version": 1, "script": "train.py", "run": run}
    facts["places"] = [{"at": at, "tensor": {"is": kind}}] if kind else []
    digest = hashlib.sha256(text.encode()).hexdigest()
    return json.dumps(facts | {"files": {"train.py": digest}} | more)


def converted(kind: str, text: str = SCRIPT, **options: Any) -> FileResult:
    path = Path("train.py").resolve()
    return migrate_text(path, text, Options(observed=Observed(path, document(kind, text)), **options))


def said(result: FileResult, severity: Severity) -> list[str]:
    return [f"{one.line} {one.reason}" for one in result.findings if one.severity is severity]


MEAN = ["10 the loss is a mean over the rows of the batch"]


def test_what_was_seen_is_no_assumption_and_is_said() -> None:
    assert said(migrate_text(Path("train.py"), SCRIPT, Options()), Severity.ASSUMED) == MEAN
    result = converted("mean")
    assert result.changed and said(result, Severity.ASSUMED) == [], result.findings
    assert said(result, Severity.OBSERVED) == MEAN
    (remedy,) = (one.remedy for one in result.findings if one.severity is Severity.OBSERVED)
    assert "`train.py --epochs 1`, 4 steps" in remedy
    assert 'Accelerator(loss_reduction="sum")' in converted("sum").after


def test_strict_takes_what_was_seen() -> None:
    assert converted("", strict=True).refused
    assert converted("mean", strict=True).changed


def test_what_was_seen_counts_for_more_than_what_is_read() -> None:
    text = SCRIPT.replace("loss = engine.loss(net)", 'loss = F.mse_loss(net(x), y, reduction="sum")')
    result = converted("mean", text)
    assert result.changed and "loss_reduction" not in result.after


# -- the command ---------------------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def migrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "facts.json").write_text(document("mean"))

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*arguments, "--no-cache"])
        return done.exit_code, done.output

    return run


def test_a_facts_file_is_used_without_running_anything(migrate: Run) -> None:
    code, output = migrate("train.py", "--facts", "facts.json", "--no-diff")
    assert code == 0 and "observed" in output


def test_a_facts_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    from crosstrain_migrate.files.sources import Unusable
    from crosstrain_migrate.observe import keep

    (tmp_path / "taken").mkdir()
    with pytest.raises(Unusable, match="cannot be written"):
        keep(Observed(Path("train.py"), "{}"), tmp_path / "taken")
    assert [one.name for one in tmp_path.iterdir()] == ["taken"]


def test_stale_facts_are_refused(migrate: Run) -> None:
    Path("train.py").write_text(SCRIPT + "\n")
    code, output = migrate("train.py", "--facts", "facts.json")
    assert code == 2
    assert "facts.json: is stale: train.py was changed since the run" in output
    assert "migrate train.py --observe --facts facts.json" in output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param("", "no such file", id="missing"),
        pytest.param("{", "is not a facts file", id="no-json"),
        pytest.param('{"version": 1}', "is not a facts file", id="another-file"),
        pytest.param(document(version=9), "has version 9", id="another-version"),
        pytest.param(document(script="other.py"), "is about a run of other.py", id="other"),
        pytest.param(document(files={"gone.py": ""}), "gone.py is gone since the run", id="gone"),
    ],
)
def test_what_is_no_use_is_said(migrate: Run, content: str, words: str) -> None:
    Path("facts.json").unlink()
    if content:
        Path("facts.json").write_text(content)
    code, output = migrate("train.py", "--facts", "facts.json")
    assert code == 2 and words in output, output


@pytest.mark.parametrize("option", [["--observe"], ["--facts", "facts.json"]])
def test_one_script_is_named(migrate: Run, option: list[str]) -> None:
    code, output = migrate(".", *option)
    assert code == 2 and "name one file" in output


def test_a_script_that_does_not_train_is_left_alone(migrate: Run) -> None:
    Path("train.py").write_text("import torch\nraise ValueError('no data')\n")
    code, output = migrate("train.py", "--observe", "--verify-timeout", "60")
    assert code == 2 and "could not be observed" in output and "no data" in output
