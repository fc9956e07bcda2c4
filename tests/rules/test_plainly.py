"""The last check of a result: a second migration, which takes it for plain, leaves it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate import engine
from crosstrain_migrate.results import Options
from crosstrain_migrate.rules.as_plain import left_over
from crosstrain_migrate.rules.base import everywhere
from crosstrain_migrate.rules.distribution.requested_options import Requested

from tests.golden.cases import Case, cases

from .support import CONVERTED, SLOTS, migrate, script

CONVERSIONS = [case for case in cases() if case.expect == "converted"]


def _left(**slots: str) -> list[str]:
    return left_over(script({**CONVERTED, **slots}), "crosstrain", everywhere, None)


@pytest.mark.parametrize(
    ("slots", "rule"),
    [
        ({"backward": "loss.backward()"}, "CT202"),
        ({"batch": "x, y = x.cuda(), y.cuda()"}, "CT104"),
        ({"model": "model = nn.Linear(8, 3).cuda()"}, "CT103"),
        ({"setup": "weights = torch.ones(3).cuda()"}, "CT105"),
        ({"after_step": 'print("step")'}, "CT401"),
        ({"step": "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()"}, "CT203"),
    ],
)
def test_what_is_left_of_the_plain_script_is_found(slots: dict[str, str], rule: str) -> None:
    (found,) = _left(**slots)
    assert rule in found


@pytest.mark.parametrize(
    "slots",
    [
        {},
        {"after_step": 'accelerator.print("step")'},
        {"after_step": 'if accelerator.is_main_process:\n    print("step")'},
        {"step": "accelerator.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()"},
        {"setup": "weights = torch.ones(3, device=accelerator.device)"},
        {"after_step": 'accelerator.print(accelerator.reduce(loss, reduction="mean").item())'},
    ],
)
def test_what_the_accelerator_does_is_done(slots: dict[str, str]) -> None:
    assert not _left(**slots)


WHOLE = """\
import torch
from torch import nn, optim
from torch.utils.data import DataLoader


def main():
    device = torch.device("cuda")
    loader = DataLoader(list(range(8)), batch_size=2)
    model = nn.Linear(1, 1)
    optimizer = optim.SGD(model.parameters(), lr=0.1)
    for x in loader:
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    torch.save(model.state_dict(), "model.pt")


main()
"""


def test_an_import_that_nothing_but_the_device_and_the_saving_used() -> None:
    result = engine.migrate_text(Path("train.py"), WHOLE, Options())
    assert not result.refused, result.findings
    assert 'accelerator.save_model(model, "model.pt")' in result.after


@pytest.mark.parametrize("case", CONVERSIONS, ids=[case.name for case in CONVERSIONS])
def test_reviewed_conversions_leave_nothing(case: Case) -> None:
    text = case.after.read_text(encoding="utf-8")
    wish = Requested(mapped=True) if case.distributed else None
    assert not left_over(text, "crosstrain", everywhere, wish)


def test_a_result_with_something_left_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        engine, "left_over", lambda *given: ["a second migration would change line 3 again (CT202)"]
    )
    result = migrate(script(SLOTS))
    assert not result.changed
    (finding,) = result.findings
    assert finding.rule == "CT001"
    assert "line 3" in finding.reason
