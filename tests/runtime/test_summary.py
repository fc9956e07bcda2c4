"""The line at the end of a launch, from what the ranks wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from crosstrain import Accelerator, summary


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
    assert summary.describe(path, 4) == expected
    assert summary.describe(tmp_path / "none", 4) == ""


def test_accelerator_that_forgot_its_loaders_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `crosstrain test`: prepare, free_memory, save."""
    monkeypatch.setenv(summary.VARIABLE, str(tmp_path / "lines"))
    accelerator = Accelerator(cpu=True)
    loader = torch.utils.data.DataLoader(torch.ones(4, 1), batch_size=2)
    accelerator.prepare(torch.nn.Linear(1, 1), loader)
    accelerator.free_memory()
    accelerator.save_state(tmp_path / "state")
    line = summary.describe(tmp_path / "lines", 1)
    assert line == f"1 process, 0 steps, no restarts, last checkpoint {tmp_path / 'state'}"
