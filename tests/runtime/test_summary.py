"""Watching a training: one process shows progress, and a launch ends with a line of what it came to."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from crosstrain.utils import run_summary, tqdm

from tests.support.ranks import run_ranks


def _progress(main_process_only: bool) -> str:
    shown = io.StringIO()
    assert list(tqdm(range(3), file=shown, main_process_only=main_process_only)) == [0, 1, 2]
    return shown.getvalue()


def test_progress_is_shown_by_the_main_process() -> None:
    zero, one = run_ranks(_progress, 2, True)
    assert "3/3" in zero
    assert one == ""
    assert all("3/3" in text for text in run_ranks(_progress, 2, False))


def test_attempts_are_added_and_the_last_checkpoint_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "lines"
    first = {
        "attempt": 0,
        "steps": 1000,
        "seconds": 9.0,
        "samples": 64,
        "checkpoint": str(tmp_path / "out/c0"),
    }
    last = {"attempt": 2, "steps": 500, "seconds": 8.0, "samples": 64}
    path.write_text("".join(json.dumps(line) + "\n" for line in ({**first, "steps": 3}, first, last)))
    expected = "4 processes, 1,500 steps, 4,000 samples/s, 2 restarts, last checkpoint out/c0"
    assert run_summary.describe(path, 4) == expected
    assert run_summary.describe(tmp_path / "none", 4) == ""
