"""Watching a training: one process shows progress, and a launch ends with a line of what it came to."""

from __future__ import annotations

import gc
import io
import json
from pathlib import Path

import pytest
import torch
from crosstrain import Accelerator
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


def _train_in_a_function() -> None:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = torch.utils.data.DataLoader(torch.ones(4, 1), batch_size=2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x in loader:
        accelerator.backward(model(x).mean())
        optimizer.step()


def test_steps_count_when_the_function_that_trained_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(run_summary.VARIABLE, str(tmp_path / "lines"))
    _train_in_a_function()
    gc.collect()
    run_summary.write()
    assert run_summary.describe(tmp_path / "lines", 1).startswith("1 process, 2 steps, ")


def test_accelerator_that_forgot_its_loaders_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in `crosstrain test`: prepare, free_memory, save."""
    monkeypatch.setenv(run_summary.VARIABLE, str(tmp_path / "lines"))
    accelerator = Accelerator(cpu=True)
    loader = torch.utils.data.DataLoader(torch.ones(4, 1), batch_size=2)
    accelerator.prepare(torch.nn.Linear(1, 1), loader)
    accelerator.free_memory()
    accelerator.save_state(tmp_path / "state")
    line = run_summary.describe(tmp_path / "lines", 1)
    assert line == f"1 process, 0 steps, no restarts, last checkpoint {tmp_path / 'state'}"
