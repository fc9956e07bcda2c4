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

GRADIENT = {
    "loss": 'out = model(x)\nloss = F.cross_entropy(out, y, reduction="none")',
    "backward": "loss.backward(\n    torch.ones(8),\n)",
}
KEPT = {"loop": "for x, y in list(train_loader):"}
SPEAKS = {
    "imports": "import os\nfrom tqdm import tqdm",
    "loop": "for x, y in tqdm(train_loader):  # one epoch",
    "after_epoch": 'print("epoch", epoch)',
    "end": 'os.makedirs("out")\nwith open("out/log.txt", "w") as f:\n    f.write("done")',
}


def _todo(text: str, **options: object) -> FileResult:
    return migrate_text(Path("train.py"), text, Options(todo=True, **options))  # type: ignore[arg-type]


def _line(text: str, part: str) -> int:
    return next(n for n, line in enumerate(text.split("\n"), 1) if part in line)


def test_all_reasons_are_said_at_once() -> None:
    text = script({**SLOTS, **GRADIENT, **KEPT})
    result = migrate_text(Path("train.py"), text, Options())
    found = [(one.rule, one.line, one.severity) for one in result.findings]
    assert found == [
        ("CT605", _line(text, "list(train_loader)"), Severity.REFUSED),
        ("CT202", _line(text, "loss.backward"), Severity.REFUSED),
    ]
    assert not result.changed


def test_a_reason_is_said_once() -> None:
    text = script({**SLOTS, **KEPT, "after_epoch": "for x, y in list(train_loader):\n    pass"})
    result = migrate_text(Path("train.py"), text, Options())
    assert [one.rule for one in result.findings] == ["CT605"]


def test_what_stands_alone_is_done_and_the_core_is_left() -> None:
    text = script({**SLOTS, **GRADIENT, **SPEAKS})
    result = _todo(text)
    assert (result.outcome, result.changed) == (FileOutcome.REFUSED, True)
    for done in (
        "from crosstrain import PartialState",
        "tqdm(train_loader, disable=not PartialState().is_local_main_process)",
        'PartialState().print("epoch", epoch)',
        'os.makedirs("out", exist_ok=True)',
        "if PartialState().is_main_process:",
    ):
        assert done in result.after
    for left in (SLOTS["device"], SLOTS["model"], SLOTS["batch"], "loss.backward("):
        assert left in result.after
    assert "Accelerator" not in result.after
    assert not comments(text) - comments(result.after)


def test_each_place_has_a_line_above_its_statement() -> None:
    lines = _todo(script({**SLOTS, **GRADIENT, **KEPT})).after.split("\n")
    for rule, below in (("CT202", "loss.backward("), ("CT605", "for x, y in list(")):
        place = next(n for n, line in enumerate(lines) if below in line)
        above = next(n for n in range(place, 0, -1) if "# TODO(crosstrain" in lines[n])
        assert f"# TODO(crosstrain {rule}): " in lines[above]
        assert all(line.strip().startswith("#") for line in lines[above:place])
        assert lines[above].index("#") == lines[place].index(below)  # indented alike


@pytest.mark.parametrize(("world", "code"), [("1", 0), ("2", 1)])
def test_it_trains_in_one_process_and_stops_in_several(tmp_path: Path, world: str, code: int) -> None:
    (tmp_path / "train.py").write_text(
        _todo(script({**SLOTS, **GRADIENT, **SPEAKS, "loop": SLOTS["loop"]})).after
    )
    ran = subprocess.run(
        [sys.executable, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "WORLD_SIZE": world},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == code, ran.stderr
    assert ("epoch 1" in ran.stdout) == (code == 0)
    assert ("TODO(crosstrain" in ran.stderr) == (code == 1)


def test_until_the_lines_are_gone_it_is_refused() -> None:
    first = _todo(script({**SLOTS, **GRADIENT}))
    for options in (Options(), Options(todo=True)):
        again = migrate_text(Path("train.py"), first.after, options)
        (found,) = again.findings
        assert (found.rule, found.severity, again.changed) == ("CT005", Severity.REFUSED, False)
        assert found.line == _line(first.after, "# TODO(crosstrain CT005)")


def test_once_they_are_done_it_is_converted() -> None:
    done = _todo(script({**SLOTS, **GRADIENT, **SPEAKS})).after
    lines = done.split("\n")
    start = _line(done, "# TODO(crosstrain CT005)") - 1
    del lines[start : start + 3]
    below = next(n for n, line in enumerate(lines) if "loss.backward(" in line)
    first = next(n for n, line in enumerate(lines) if "# TODO(crosstrain" in line)
    text = "\n".join(lines[:first] + lines[below:]).replace(
        "loss.backward(\n            torch.ones(8),\n        )", "loss.mean().backward()"
    )
    result = migrate_text(Path("train.py"), text, Options())
    assert result.outcome is not FileOutcome.REFUSED, result.findings
    assert "accelerator.backward(loss.mean())" in result.after


def test_a_script_that_converts_has_nothing_left_to_do() -> None:
    text = script(SLOTS)
    assert _todo(text) == migrate_text(Path("train.py"), text, Options())


def test_the_lines_stand_in_the_files_they_are_about() -> None:
    helper = "def backwards(loader):\n    return reversed(list(loader))\n"
    main = script(
        {**SLOTS, "imports": "from helper import backwards", "loop": "for x, y in backwards(train_loader):"}
    )
    result = _todo(link([("helper.py", helper), ("train.py", main)], (".",)))
    first, second = (part.text for part in parts(result.after))
    assert "    # TODO(crosstrain CT605): " in first
    assert "WORLD_SIZE" not in first
    assert "WORLD_SIZE" in second
    for text in (first, second):
        ast.parse(text)


@pytest.mark.parametrize("runtime", ["crosstrain", "accelerate"])
def test_either_runtime_has_the_state_that_is_asked(runtime: str) -> None:
    after = _todo(script({**SLOTS, **GRADIENT, **SPEAKS}), runtime=runtime).after
    assert f"from {runtime} import PartialState" in after
