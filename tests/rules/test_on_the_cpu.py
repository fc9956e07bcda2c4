"""CT201: batches that a script works on before it moves them stay on the CPU until then."""

from __future__ import annotations

import pytest

from .support import SLOTS, check_invariants, migrate, script

MOVES = "x, y = x.to(device), y.to(device)"
APART = "train_loader = accelerator.prepare_data_loader(train_loader, device_placement=False)"
BEFORE = {
    "read by numpy": "x = torch.tensor(np.sqrt(x.numpy()))",
    "a label written into zeros": "hot = torch.zeros(len(y), 3).scatter_(1, y.view(-1, 1), 1)",
    "rows of a table": "hot = table[y]",
    "noise": "x = x + torch.randn(x.size())",
    "joined with zeros": "x = torch.cat([x, torch.zeros(len(x), 0)], 1)",
}
PLACED = {
    "nothing before": "pass",
    "the length alone": "rows = torch.zeros(len(y), 3).to(device)",
    "a number": "x = x * 2 + 1",
    "a tensor on the device": "x = x + torch.zeros(8, device=x.device)",
    "the script's own on the device": "hot = there[y]",
}


def text(code: str, moves: str = MOVES) -> str:
    slots = {
        "imports": "import numpy as np",
        "setup": "table = torch.eye(3)\nthere = torch.eye(3).to(device)",
        "batch": f"{code}\n{moves}",
    }
    return script({**SLOTS, **slots})


@pytest.mark.parametrize("code", BEFORE.values(), ids=BEFORE)
def test_worked_on_before_it_is_moved(code: str) -> None:
    result = migrate(text(code))
    assert f"model, optimizer = accelerator.prepare(model, optimizer)\n{APART}\n" in result.after
    assert f"        {code}\n        {MOVES}\n" in result.after
    check_invariants(text(code), result)


@pytest.mark.parametrize("code", PLACED.values(), ids=PLACED)
def test_placed_by_the_loader(code: str) -> None:
    after = migrate(text(code)).after
    assert "prepare_data_loader" not in after
    assert MOVES not in after


def test_what_is_moved_first_is_placed_by_the_loader() -> None:
    after = migrate(text(MOVES, "x = x + torch.randn(x.size(), device=device)")).after
    assert "prepare_data_loader" not in after


def test_a_script_that_moves_nothing_gets_its_batches_placed() -> None:
    after = migrate(text("x = x + 1", "pass")).after
    assert "prepare_data_loader" not in after
