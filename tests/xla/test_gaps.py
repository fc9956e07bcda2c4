"""Inference mode, and checkpoints of the author's own, on XLA as elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from crosstrain import Accelerator
from torch import Tensor, nn

from tests.xla.support import on_xla


@torch.inference_mode()
def evaluated(model: nn.Module, rows: Tensor) -> Tensor:
    return model(rows.flatten(1)).argmax(1)


def gaps(file: Path) -> dict[str, Any]:
    model = nn.Linear(4, 3)
    plain = evaluated(model, torch.ones(2, 2, 2)).tolist()
    accelerator = Accelerator()
    model = accelerator.prepare(model)
    rows = torch.ones(2, 2, 2, device=accelerator.device)
    found = evaluated(model, rows).tolist()
    with torch.inference_mode():
        outside = model(rows.flatten(1)).requires_grad
        with torch.inference_mode(False):
            switched_off = model(rows.flatten(1)).requires_grad
    again = torch.is_grad_enabled()
    torch.save(model.state_dict(), file)
    wanted = model.weight.detach().cpu().clone()
    with torch.no_grad():
        model.weight.zero_()
    model.load_state_dict(torch.load(file, map_location=accelerator.device))
    kept = torch.equal(model.weight.detach().cpu(), wanted)
    return {
        "alike": plain == found,
        "gradients": (outside, switched_off, again),
        "kept": kept,
        "device": model.weight.device.type,
    }


def test_inference_mode_and_files_work(tmp_path: Path) -> None:
    found = on_xla(gaps, tmp_path / "weights.pt")
    assert found == {"alike": True, "gradients": (False, True, True), "kept": True, "device": "xla"}
