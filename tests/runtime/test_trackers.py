"""The trackers' own libraries, on two processes: what they wrote is read back."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from crosstrain import Accelerator

from tests.support.ranks import run_ranks

CONFIG = {"lr": 0.1, "layers": [2, 3], "name": "digits"}


def _train(name: str, folder: str, init: dict[str, Any]) -> tuple[bool, str]:
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=folder)
    accelerator = Accelerator(cpu=True, log_with=name, project_dir=folder)
    accelerator.init_trackers("digits", CONFIG, init_kwargs={name: init})
    for step in range(3):
        mine = torch.tensor(float(step + accelerator.process_index))
        accelerator.log({"loss": accelerator.reduce(mine), "lr": 0.1 / (step + 1)}, step=step)
    if name == "tensorboard":
        accelerator.log({"both": {"train": 1.0, "test": torch.tensor(2.0)}, "note": "a line"}, step=2)
    run = accelerator.get_tracker(name, unwrap=True)
    seen = accelerator.is_main_process, type(run).__name__
    accelerator.end_training()
    return seen


def test_tensorboard_holds_what_was_logged_once(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    seen = run_ranks(_train, 2, "tensorboard", str(tmp_path), {"flush_secs": 5})
    assert seen[0] == (True, "SummaryWriter")
    assert not seen[1][0]
    assert len(list((tmp_path / "digits").glob("events.out.tfevents.*"))) == 1  # one process writes
    events = EventAccumulator(str(tmp_path / "digits")).Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss")] == [(0, 1.0), (1, 3.0), (2, 5.0)]
    assert events.Scalars("lr")[1].value == pytest.approx(0.05)
    assert "note/text_summary" in events.Tags()["tensors"]
    groups = {path.name for path in (tmp_path / "digits").iterdir() if path.is_dir()}
    assert {"both_train", "both_test"} <= groups
    (test,) = EventAccumulator(str(tmp_path / "digits" / "both_test")).Reload().Scalars("both")
    assert (test.step, test.value) == (2, 2.0)
    (hyper,) = (name for name in groups if not name.startswith("both"))
    data = next((tmp_path / "digits" / hyper).iterdir()).read_bytes()
    assert b"layers" in data and b"[2, 3]" in data
