"""Converting with what an observed run has seen, as the command does it: facts files, grades, contradictions."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
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
from torch import nn
from zoo import build, engine, mix


class Net(nn.Module):
    def forward(self, x):
        return mix(x)


net = build("net")
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loader = build("loader")
for x, y in loader:
    out = Net()(x)
    print(F.cross_entropy(out, y).item(), (out.argmax(1) == y).sum().item())
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


def document(places: list[dict[str, Any]], text: str = SCRIPT) -> dict[str, Any]:
    return {
        "version": 1,
        "script": "train.py",
        "run": {
            "arguments": ["--epochs", "1"],
            "processes": 1,
            "steps": 4,
            "seconds": 1.0,
            "data": "real",
            "notes": [],
        },
        "files": {"train.py": hashlib.sha256(text.encode()).hexdigest()},
        "objects": [
            {"role": "module", "class": {"name": "zoo.Net"}, "made": [place('build("net")', "net =")]},
            {
                "role": "loader",
                "class": {"name": "zoo.Loader"},
                "made": [place('build("loader")', "loader =")],
            },
        ],
        "places": places,
        "ran": {"train.py": [[1, 14]]},
        "losses": ["train.py:12:<module>"],
    }


OBJECTS = [
    {"at": place('build("net")', "net ="), "objects": [0]},
    {"at": place('build("loader")', "loader ="), "objects": [1]},
    {"at": place("loader", "for x"), "objects": [1]},
]


def converted(*places: dict[str, Any], **options: Any) -> FileResult:
    path = Path("train.py").resolve()
    observed = Observed(path, json.dumps(document([*OBJECTS, *places])))
    return migrate_text(path, SCRIPT, Options(observed=observed, **options))


def seen(kind: str) -> dict[str, Any]:
    return {"at": place("loss", "loss.backward"), "tensor": {"is": kind, "loader": 1}}


def said(result: FileResult, severity: Severity) -> list[str]:
    return [f"{one.line} {one.reason}" for one in result.findings if one.severity is severity]


def test_without_a_run_the_loss_is_taken_for_a_mean() -> None:
    result = migrate_text(Path("train.py"), SCRIPT, Options())
    assert said(result, Severity.ASSUMED) == ["20 the loss is a mean over the rows of the batch"]


def test_what_was_seen_is_no_assumption_and_is_said() -> None:
    result = converted(seen("mean"))
    assert result.changed and said(result, Severity.ASSUMED) == [], result.findings
    assert said(result, Severity.OBSERVED) == ["20 the loss is a mean over the rows of the batch"]
    (remedy,) = (one.remedy for one in result.findings if one.severity is Severity.OBSERVED)
    assert "`train.py --epochs 1`, 4 steps" in remedy


def test_strict_takes_what_was_seen() -> None:
    assert converted(strict=True).refused
    assert converted(seen("mean"), strict=True).changed


def test_a_sum_that_was_seen_is_a_sum() -> None:
    assert 'Accelerator(loss_reduction="sum")' in converted(seen("sum")).after


def test_what_was_seen_counts_for_more_than_what_is_read() -> None:
    text = SCRIPT.replace("loss = engine.loss(net)", 'loss = F.mse_loss(net(x), y, reduction="sum")')
    path = Path("train.py").resolve()
    facts = document([*OBJECTS, {**seen("mean"), "at": place("loss", "loss.backward", text)}], text)
    result = migrate_text(path, text, Options(observed=Observed(path, json.dumps(facts))))
    assert result.changed and "loss_reduction" not in result.after


# -- the command ---------------------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def migrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "facts.json").write_text(json.dumps(document([*OBJECTS, seen("mean")])))

    def run(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*arguments, "--no-cache"])
        return done.exit_code, done.output

    yield run


def test_a_facts_file_is_used_without_running_anything(migrate: Run) -> None:
    code, output = migrate("train.py", "--facts", "facts.json", "--no-diff")
    assert code == 0 and "observed" in output


def test_a_facts_file_that_cannot_be_written_leaves_nothing(migrate: Run, tmp_path: Path) -> None:
    from crosstrain_migrate.files.sources import Unusable
    from crosstrain_migrate.observe import keep

    (tmp_path / "taken").mkdir()
    with pytest.raises(Unusable, match="cannot be written"):
        keep(Observed(Path("train.py"), "{}"), tmp_path / "taken")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["facts.json", "taken", "train.py"]


def test_stale_facts_are_refused(migrate: Run) -> None:
    Path("train.py").write_text(SCRIPT + "\n")
    code, output = migrate("train.py", "--facts", "facts.json")
    assert code == 2
    assert "facts.json: is stale: train.py was changed since the run" in output
    assert "migrate train.py --observe --facts facts.json" in output


@pytest.mark.parametrize(
    ("content", "words"),
    [
        pytest.param(None, "no such file", id="missing"),
        pytest.param("{", "is not a facts file", id="no-json"),
        pytest.param('{"version": 1}', "is not a facts file", id="another-file"),
        pytest.param(json.dumps(document([]) | {"version": 9}), "has version 9", id="another-version"),
        pytest.param(
            json.dumps(document([]) | {"script": "other.py"}), "is about a run of other.py", id="other"
        ),
        pytest.param(
            json.dumps(document([]) | {"files": {"gone.py": ""}}), "gone.py is gone since the run", id="gone"
        ),
    ],
)
def test_what_is_no_use_is_said(migrate: Run, content: str | None, words: str) -> None:
    file = Path("facts.json")
    file.unlink()
    if content is not None:
        file.write_text(content)
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
