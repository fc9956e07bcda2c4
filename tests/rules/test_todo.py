"""All reasons of a refused script at once, and ``--todo``: what becomes of one."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import FileOutcome, FileResult, Options, Severity
from crosstrain_migrate.syntax.program import link, parts

from .support import SLOTS, comments, script

# A line search with batches: each process would search by the loss of its own share.
SEARCH = {
    "optimizer": "optimizer = torch.optim.LBFGS(\n    model.parameters(),\n    lr=0.1,\n)  # a line search",
    "loss": "",
    "backward": "def closure():\n    optimizer.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    return loss",
    "step": "optimizer.step(closure)",
    "after_epoch": 'print("epoch", epoch)',
}
SECOND = {"setup": "other = torch.optim.LBFGS(model.parameters())", "after_step": "other.step(closure)"}


def _todo(text: str, **options: object) -> FileResult:
    return migrate_text(Path("train.py"), text, Options(todo=True, **options))  # type: ignore[arg-type]


def _line(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.split("\n"), 1) if part in line)


def test_all_reasons_are_said_at_once() -> None:
    text = script({**SLOTS, **SEARCH, **SECOND})
    result = migrate_text(Path("train.py"), text, Options())
    found = [(one.rule, one.line, one.severity) for one in result.findings]
    assert found == [
        ("CT903", _line(text, "optimizer = torch.optim.LBFGS"), Severity.REFUSED),
        ("CT903", _line(text, "other = torch.optim.LBFGS"), Severity.REFUSED),
    ]
    assert not result.changed


def _is_kept(text: str, after: str) -> bool:
    lines = iter(after.split("\n"))
    return all(line in lines for line in text.split("\n"))


def test_the_core_is_converted_and_the_rest_left_as_it_is() -> None:
    text = script({**SLOTS, **SEARCH})
    result = _todo(text)
    assert (result.outcome, result.changed) == (FileOutcome.REFUSED, True)
    assert "model, optimizer, train_loader = accelerator.prepare(" in result.after
    assert "accelerator.backward(loss)" in result.after
    assert "torch.optim.LBFGS(\n" in result.after and "optimizer.step(closure)" in result.after
    assert not comments(text) - comments(result.after)
    of_core = [one for one in result.changes if one.rule != "CT005"]
    assert [one.line for one in of_core if one.rule == "CT202"] == [_line(text, "loss.backward()")]


@pytest.mark.parametrize(
    "text",
    [
        script({**SLOTS, **SEARCH, "optimizer": SEARCH["optimizer"] + "  # migrate: skip CT302"}),
        script(
            {
                **SLOTS,
                "imports": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP",
                "optimizer": "model = FSDP(model)\noptimizer = torch.optim.SGD(model.parameters())",
            }
        ),
    ],
    ids=["a person keeps edits away", "another framework distributes it"],
)
def test_no_code_changes(text: str) -> None:
    result = _todo(text)
    assert result.changed and _is_kept(text, result.after), result.after


def test_a_script_that_is_refused_becomes_one_that_trains_the_same(tmp_path: Path) -> None:
    """Convert, mend, verify: what `docs/guides/assistants.md` shows."""
    before = script({**SLOTS, **SEARCH})
    (tmp_path / "before.py").write_text(before)
    text = _todo(before).after
    start = _line(text, "# TODO(crosstrain CT005)") - 1
    lines = text.split("\n")
    del lines[start : start + 3]
    first = next(n for n, line in enumerate(lines) if "# TODO(crosstrain CT903)" in line)
    below = next(n for n, line in enumerate(lines) if "torch.optim.LBFGS(" in line)
    mended = "\n".join(lines[:first] + lines[below:])
    mended = mended.replace("    return loss", '    return accelerator.reduce(loss, "mean")')
    (tmp_path / "train.py").write_text(mended)
    assert not migrate_text(Path("train.py"), mended, Options()).refused
    from crosstrain_verify import verify

    report = verify(tmp_path / "before.py", tmp_path / "train.py", timeout=300)
    assert [run.verdict.value for run in report.runs] == ["identical", "equal"], report


def test_each_place_has_a_line_above_its_statement() -> None:
    lines = _todo(script({**SLOTS, **SEARCH, **SECOND})).after.split("\n")
    for below in ("optimizer = torch.optim.LBFGS(", "other = torch.optim.LBFGS("):
        place = next(n for n, line in enumerate(lines) if below in line)
        above = next(n for n in range(place, 0, -1) if "# TODO(crosstrain" in lines[n])
        assert "# TODO(crosstrain CT903): " in lines[above]
        assert all(line.strip().startswith("#") for line in lines[above:place])
        assert lines[above].index("#") == lines[place].index(below)  # indented alike


@pytest.mark.parametrize(("world", "code"), [("1", 0), ("2", 1)])
def test_it_trains_in_one_process_and_stops_in_several(tmp_path: Path, world: str, code: int) -> None:
    (tmp_path / "train.py").write_text(_todo(script({**SLOTS, **SEARCH})).after)
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
    first = _todo(script({**SLOTS, **SEARCH}))
    for options in (Options(), Options(todo=True)):
        again = migrate_text(Path("train.py"), first.after, options)
        (found,) = again.findings
        assert (found.rule, found.severity, again.changed) == ("CT005", Severity.REFUSED, False)
        assert found.line == _line(first.after, "# TODO(crosstrain CT005)")


def test_once_they_are_done_it_is_converted() -> None:
    done = _todo(script({**SLOTS, **SEARCH})).after
    lines = done.split("\n")
    start = _line(done, "# TODO(crosstrain CT005)") - 1
    del lines[start : start + 3]
    below = next(n for n, line in enumerate(lines) if "torch.optim.LBFGS(" in line)
    first = next(n for n, line in enumerate(lines) if "# TODO(crosstrain" in line)
    text = "\n".join(lines[:first] + lines[below:]).replace("LBFGS", "SGD")
    result = migrate_text(Path("train.py"), text, Options())
    assert result.outcome is not FileOutcome.REFUSED, result.findings
    assert "accelerator.backward(loss)" in result.after


def test_a_script_that_converts_has_nothing_left_to_do() -> None:
    text = script(SLOTS)
    assert _todo(text) == migrate_text(Path("train.py"), text, Options())


def test_the_lines_stand_in_the_files_they_are_about() -> None:
    helper = "import torch\n\n\ndef searches(model):\n    return torch.optim.LBFGS(model.parameters())\n"
    main = script(
        {
            **SLOTS,
            **SEARCH,
            "imports": "from helper import searches",
            "optimizer": "optimizer = searches(model)",
        }
    )
    result = _todo(link([("helper.py", helper), ("train.py", main)], (".",)))
    first, second = (part.text for part in parts(result.after))
    assert "    # TODO(crosstrain CT903): " in first
    assert "WORLD_SIZE" not in first
    assert "WORLD_SIZE" in second
    for text in (first, second):
        ast.parse(text)
