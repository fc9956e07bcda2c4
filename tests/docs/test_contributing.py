"""CONTRIBUTING.md: the places it names exist, and the rule it shows works."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import types
from functools import partial
from pathlib import Path

import pytest
from crosstrain_migrate.rules import planning
from crosstrain_migrate.rules.catalogue import pages_of

from tests.rules.support import SLOTS, migrate, script
from tests.rules.test_examples import check

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("place", re.findall(r"`((?:migrate|runtime|tests|golden)/[\w./]*)`", TEXT))
def test_a_place_exists(place: str) -> None:
    assert (ROOT / place).exists()


def test_the_rule_that_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = re.search(r"```python\n(\"\"\"CT999.*?)```", TEXT, re.DOTALL)
    assert shown is not None
    rule = types.ModuleType("rule")
    exec(compile(shown[1], "CONTRIBUTING.md", "exec"), vars(rule))
    monkeypatch.setattr(planning, "FURTHER", (*planning.FURTHER, rule))
    (page,) = pages_of(rule.__doc__ or "")
    assert (page.code, page.title) == ("CT999", "anomaly detection is on")
    assert [example.kind for example in page.examples] == ["Noted", "Stays"]
    for example in page.examples:
        check(example)
    assert not [f for f in migrate(script({**SLOTS, "setup": "print(model)"})).findings if f.rule == "CT999"]


def test_a_rule_that_is_added_has_its_turn_and_its_page(tmp_path: Path) -> None:
    """Nothing but the file is needed."""
    package = tmp_path / "crosstrain_migrate"
    shutil.copytree(ROOT / "migrate" / "crosstrain_migrate", package)
    shown = re.search(r"```python\n(\"\"\"CT999.*?)```", TEXT, re.DOTALL)
    assert shown is not None
    (package / "rules" / "numbers" / "anomalies.py").write_text(shown[1])
    train = tmp_path / "train.py"
    train.write_text(script({**SLOTS, "setup": "torch.autograd.set_detect_anomaly(True)"}))
    paths = [str(tmp_path), str(ROOT / "runtime"), str(ROOT / "templates")]
    run = partial(subprocess.run, capture_output=True, text=True, cwd=tmp_path, check=False)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
    migrate_module = [sys.executable, "-m", "crosstrain_migrate.cli"]
    said = run([*migrate_module, "train.py", "--no-cache", "--no-diff"], env=environment)
    assert "CT999  every backward pass is checked for NaN" in said.stderr
    listed = run([*migrate_module, "--list-rules"], env=environment)
    assert "CT999  anomaly detection is on" in listed.stdout
