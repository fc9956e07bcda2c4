"""CT104: what NumPy reads of a prepared loader's batch is fetched from the device."""

from __future__ import annotations

import pytest

from .support import SLOTS, check_invariants, migrate, script

FETCHED = {
    "read by numpy": ("points = x.numpy()", "points = x.cpu().numpy()"),
    "by way of data": ("points = x.data.numpy()", "points = x.data.cpu().numpy()"),
    "a sum": ("points = (x + 1).numpy()", "points = (x + 1).cpu().numpy()"),
    "given to a function of numpy": ("points = np.sqrt(x)", "points = np.sqrt(x.cpu())"),
}
LEFT = {
    "on the CPU already": "points = x.cpu().numpy()",
    "by the device's name": 'points = x.to("cpu").numpy()',
    "what it is compared with is on the device": "points = (x == x).float().cpu().numpy()",
    "in a variable": "kept = x.cpu()\npoints = kept.numpy()",
    "a size": "points = np.zeros(x.size(0))",
    "a length": "points = np.zeros(len(x))",
    "nothing of the batch": "points = torch.ones(3).numpy()",
}


def text(code: str) -> str:
    """A script that moves no batch, and trains on what it makes of it on the CPU."""
    slots = {
        "imports": "import numpy as np",
        "batch": code,
        "loss": "out = model(x + torch.as_tensor(points).mean())\nloss = F.cross_entropy(out, y)",
    }
    return script({**SLOTS, **slots})


@pytest.mark.parametrize(("before", "after"), FETCHED.values(), ids=FETCHED)
def test_fetched(before: str, after: str) -> None:
    result = migrate(text(before))
    assert result.changed, result.findings
    assert f"        {after}\n" in result.after
    check_invariants(text(before), result)


@pytest.mark.parametrize("code", LEFT.values(), ids=LEFT)
def test_left_alone(code: str) -> None:
    assert f"        {code.splitlines()[-1]}\n" in migrate(text(code)).after


@pytest.mark.parametrize("pair", ["{} == y", "{}.eq(y)", "({} - y).abs()", "y != {}"])
def test_what_meets_a_tensor_on_the_cpu(pair: str) -> None:
    """The script compares where its labels are; the loader's labels are on the device."""
    hits = pair.format("model(x.to(device)).argmax(1).cpu()")
    slots = {"batch": "", "loss": "out = model(x.to(device))\nloss = F.cross_entropy(out, y.to(device))"}
    code = script({**SLOTS, **slots, "after_step": f"print(({hits}).sum().item())"})
    result = migrate(code)
    check_invariants(code, result)
    assert "y.cpu()" in result.after.split("optimizer.step()")[1]
