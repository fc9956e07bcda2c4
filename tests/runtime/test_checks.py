"""The journal of checks: one line for each place and kind, with what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SCRIPT = """
from crosstrain.utils import checks

for step in range(3):
    checks.held("rows") if checks.first_use("rows") else None
checks.expect("mean")
checks.expect("alike")
checks.failed("loader", "no loader"); checks.held("loader")
for step in range(2):
    checks.held("module") if step == 0 else checks.doubt("module")
checks.held("module", checks.Place(__file__, 99)); checks.failed("module", "fails", checks.Place(__file__, 99))
checks.doubt("module", checks.Place(__file__, 99))
"""


def _journal(tmp_path: Path) -> list[dict[str, Any]]:
    script, journal = tmp_path / "script.py", tmp_path / "checks.jsonl"
    script.write_text(SCRIPT)
    env = os.environ | {"CROSSTRAIN_CHECKS": str(journal), "RANK": "1"}
    subprocess.run([sys.executable, str(script)], check=True, env=env, timeout=300)
    return [json.loads(line) for line in journal.read_text().splitlines()]


def test_every_place_and_kind_is_written_once(tmp_path: Path) -> None:
    entries = _journal(tmp_path)
    assert {entry["file"] for entry in entries} == {str(tmp_path / "script.py")}
    assert {entry["rank"] for entry in entries} == {1}
    found = {(entry["kind"], entry["line"]): entry["status"] for entry in entries}
    assert len(found) == len(entries) - 2, "a later line about the same place counts"
    assert found == {
        ("rows", 5): "held",
        ("mean", 6): "not reached",
        ("alike", 7): "not reached",
        ("loader", 8): "failed",
        ("module", 10): "not reached",
        ("module", 99): "failed",
    }
    assert [entry["message"] for entry in entries if "message" in entry] == ["no loader", "fails"]
