"""All reasons of a refused script at once, and ``--todo``: what becomes of one."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import FileOutcome, FileResult, Options, Severity
from crosstrain_migrate.syntax.program import link, parts

from .support import comments, script

# A line search with batches: each process would search by the loss of its own share.
SEARCH = {
    "optimizer": "optimizer = torch.optim.LBFGS(\n    model.parameters(),\n    lr=0.1,\n)  # a line search",
    "loss": "",
    "backward": "def closure():\n    optimizer.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    return loss",
    "step": "optimizer.step(closure)",
    "after_epoch": 'print("epoch", epoch)',
}
SECOND = {"setup": "other = torch.optim.LBFGS(model.parameters())", "after_step": "other.step(closure)"}

LAST = script(**SEARCH)


def _todo(text: str) -> FileResult:
    return migrate_text(Path("train.py"), text, Options(todo=True))


def _line(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.split("\n"), 1) if part in line)


def test_all_reasons_are_said_at_once_and_above_their_statements() -> None:
    text = script(**SEARCH, **SECOND)
    result = migrate_text(Path("train.py"), text, Options())
    places = ("optimizer = torch.optim.LBFGS(", "other = torch.optim.LBFGS(")
    found = [(one.rule, one.line, one.severity) for one in result.findings]
    assert found == [("CT903", _line(text, place), Severity.REFUSED) for place in places]
    assert not result.changed
    lines = _todo(text).after.split("\n")
    for below in places:
        place = next(n for n, line in enumerate(lines) if below in line)
        above = next(n for n in range(place, 0, -1) if "# TODO(crosstrain" in lines[n])
        assert "# TODO(crosstrain CT903): " in lines[above]
        assert all(line.strip().startswith("#") for line in lines[above:place])
        assert lines[above].index("#") == lines[place].index(below)  # indented alike


def test_the_core_is_converted_and_the_rest_left_as_it_is() -> None:
    result = _todo(LAST)
    assert (result.outcome, result.changed) == (FileOutcome.REFUSED, True)
    assert "model, optimizer, train_loader = accelerator.prepare(" in result.after
    assert "accelerator.backward(loss)" in result.after
    assert "torch.optim.LBFGS(\n" in result.after and "optimizer.step(closure)" in result.after
    assert not comments(LAST) - comments(result.after)
    assert [one.line for one in result.changes if one.rule == "CT202"] == [_line(LAST, "loss.backward()")]


FSDP = script(
    imports="from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
    optimizer="model = FSDP(model)\noptimizer = torch.optim.SGD(model.parameters())",
)


@pytest.mark.parametrize("text", [LAST.replace("search\n", "search  # migrate: skip CT302\n"), FSDP])
def test_no_code_changes(text: str) -> None:
    """Where a person keeps edits away, or another framework distributes it."""
    result = _todo(text)
    lines = iter(result.after.split("\n"))
    assert result.changed and all(line in lines for line in text.split("\n")), result.after


@pytest.mark.parametrize(("world", "code"), [("1", 0), ("2", 1)])
def test_it_trains_in_one_process_and_stops_in_several(tmp_path: Path, world: str, code: int) -> None:
    (tmp_path / "train.py").write_text(_todo(LAST).after)
    ran = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "WORLD_SIZE": world},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    assert ("epoch 1" in ran.stdout) == (code == 0)
    assert ("TODO(crosstrain" in ran.stderr) == (code == 1)


def test_until_the_lines_are_gone_it_is_refused() -> None:
    first = _todo(LAST).after
    for options in (Options(), Options(todo=True)):
        again = migrate_text(Path("train.py"), first, options)
        (found,) = again.findings
        assert (found.rule, found.severity, again.changed) == ("CT005", Severity.REFUSED, False)
        assert found.line == _line(first, "# TODO(crosstrain CT005)")
    lines = first.split("\n")
    start = found.line - 1
    todo, below = (_line(first, part) - 1 for part in ("# TODO(crosstrain CT903)", "torch.optim.LBFGS("))
    done = "\n".join(lines[:start] + lines[start + 3 : todo] + lines[below:]).replace("LBFGS", "SGD")
    result = migrate_text(Path("train.py"), done, Options())
    assert result.outcome is not FileOutcome.REFUSED, result.findings
    assert "accelerator.backward(loss)" in result.after


def test_a_script_that_converts_has_nothing_left_to_do() -> None:
    assert _todo(script()) == migrate_text(Path("train.py"), script(), Options())


def test_the_lines_stand_in_the_files_they_are_about() -> None:
    helper = "import torch\n\n\ndef searches(model):\n    return torch.optim.LBFGS(model.parameters())\n"
    imports = {"imports": "from helper import searches", "optimizer": "optimizer = searches(model)"}
    result = _todo(link([("helper.py", helper), ("train.py", script(**{**SEARCH, **imports}))], (".",)))
    first, second = (part.text for part in parts(result.after))
    assert "    # TODO(crosstrain CT903): " in first
    assert "WORLD_SIZE" not in first
    assert "WORLD_SIZE" in second
    for text in (first, second):
        ast.parse(text)
