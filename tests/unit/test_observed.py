"""Converting with what an observed run has seen, as the command does it: facts files, grades, contradictions."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crosstrain_migrate.cli import app
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.facts.facts import understand
from crosstrain_migrate.facts.observed import sightings
from crosstrain_migrate.results import FileResult, Observed, Options, Severity
from crosstrain_migrate.syntax.program import parse
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
ROWS = {"is": "rows", "loader": 1, "alone": True, "shape": [8, 3]}


def converted(*places: dict[str, Any], **options: Any) -> FileResult:
    path = Path("train.py").resolve()
    observed = Observed(path, json.dumps(document([*OBJECTS, *places])))
    return migrate_text(path, SCRIPT, Options(observed=observed, **options))


def said(result: FileResult, severity: Severity) -> list[str]:
    return [f"{one.line} {one.reason}" for one in result.findings if one.severity is severity]


def test_without_a_run_nobody_knows_what_the_loop_goes_over() -> None:
    result = migrate_text(Path("train.py"), SCRIPT, Options())
    assert [one.rule for one in result.findings] == ["CT902"]


REGISTRY = """\
import sys, torch
from torch import nn

class Net(nn.Linear):
    pass

def build(place, name, *args):
    return getattr(place, name)(*args)

net = build(sys.modules[__name__], "Net", 3, 1)
optimizer = build(torch.optim, "SGD", net.parameters())
for x, y in build(torch.utils.data, "DataLoader", data):
    optimizer.zero_grad()
    (net(x) - y).square().mean().backward()
    optimizer.step()
"""


def test_without_a_run_a_call_that_makes_everything_is_refused() -> None:
    """Prepared in the registry, the loader would be shared, and nobody would know that its rows are."""
    result = migrate_text(Path("train.py"), REGISTRY, Options())
    assert result.refused and not result.changed
    assert any("migrate --observe" in one.remedy for one in result.findings), result.findings


def test_what_was_seen_is_no_assumption_and_is_said() -> None:
    result = converted(
        {"at": place("Net()(x)", "out ="), "tensor": ROWS},
        {"at": place("out", "print(F"), "tensor": ROWS},
        {"at": place("loss", "loss.backward"), "tensor": {"is": "mean", "loader": 1}},
    )
    assert result.changed and said(result, Severity.ASSUMED) == [], result.findings
    observed = "\n".join(said(result, Severity.OBSERVED))
    assert '`build("loader")` is a DataLoader' in observed and '`build("net")` is a module' in observed
    assert "20 `loss` is a mean over the rows" in observed
    remedies = {one.remedy for one in result.findings if one.severity is Severity.OBSERVED}
    assert all("`train.py --epochs 1`, 4 steps" in one for one in remedies)


def test_strict_takes_what_was_seen() -> None:
    loss = {"at": place("loss", "loss.backward"), "tensor": {"is": "mean", "loader": 1}}
    rows = {"at": place("Net()(x)", "out ="), "tensor": ROWS}
    assert converted(loss, strict=True).refused
    assert converted(loss, rows, strict=True).changed


def test_a_sum_that_was_seen_is_a_sum() -> None:
    result = converted({"at": place("loss", "loss.backward"), "tensor": {"is": "sum", "loader": 1}})
    assert 'loss_reduction="sum"' in result.after


def test_a_contradiction_is_refused_with_both_sides() -> None:
    fixed = {"is": "fixed", "loader": 1, "shape": [8, 3]}
    result = converted({"at": place("out", "print(F"), "tensor": fixed})
    assert result.refused and not result.changed
    (reason,) = [one for one in result.findings if one.severity is Severity.REFUSED]
    assert "that is what the code around it says" in reason.reason
    assert "did not follow the rows of a permuted batch" in reason.remedy


def test_a_part_of_a_module_is_no_module_of_its_own() -> None:
    script = SCRIPT.replace("net.parameters()", '[{"params": net.layer.parameters()}]')
    facts = document(OBJECTS, script)
    layer = {"at": place("net.layer", "optimizer =", script), "objects": [2]}
    facts["places"] = [*OBJECTS, layer]
    facts["objects"].append(
        {"role": "module", "class": {"name": "torch.nn.Linear"}, "made": [layer["at"]], "part": True}
    )
    path = Path("train.py").resolve()
    result = migrate_text(path, script, Options(observed=Observed(path, json.dumps(facts))))
    assert result.changed and "prepare(net.layer)" not in result.after
    assert "net, optimizer, loader = accelerator.prepare(net, optimizer, loader)" in result.after


def test_a_branch_that_did_not_run_keeps_its_grade() -> None:
    """What is seen elsewhere says nothing of the other reading."""
    result = converted({"at": place("loss", "loss.backward"), "tensor": {"is": "mean", "loader": 1}})
    assert [one for one in said(result, Severity.ASSUMED) if "has one row" in one], result.findings


def test_a_variable_whose_uses_saw_different_things_is_not_told_by_one_of_them() -> None:
    """A branch sees only some of what a loop binds a variable to."""
    script = SCRIPT.replace(
        "for x, y in loader:", "for part in parts():\n    first(part)\n    second(part)\nfor x, y in loader:"
    )
    facts = document(OBJECTS, script)
    facts["places"] = [
        *OBJECTS,
        {"at": place("part", "first(part)", script), "objects": [0]},
        {"at": place("part", "second(part)", script), "objects": [1]},
    ]
    facts["places"][2] = {"at": place("loader", "for x", script), "objects": [1]}
    seen = sightings(json.dumps(facts), script, {"train.py": 1})
    found = understand(parse(script), seen).interp
    (binding,) = (
        n for n in ast.walk(found.tree) if isinstance(n, ast.For) and ast.unparse(n.target) == "part"
    )
    assert binding.target not in found.observed


# -- the command ---------------------------------------------------------------------------------------------

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def migrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "facts.json").write_text(json.dumps(document(OBJECTS)))

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


def test_verify_observes_first_where_something_is_open(migrate: Run) -> None:
    """The conversion that is compared is the one made with what was seen."""
    golden = Path(__file__).parents[2] / "golden" / "registry"
    for file in (golden / "before").iterdir():
        if file.is_file():
            Path(file.name).write_bytes(file.read_bytes())
    Path("pyproject.toml").write_text('[tool.crosstrain.migrate]\ncentre = "facts"\n')
    code, output = migrate("train.py", "--verify", "--write", "--no-diff", "--verify-steps", "6")
    assert code == 0, output
    assert "converted with what was seen" in output
    assert Path("train.py").read_text() == (golden / "after" / "train.py").read_text()
