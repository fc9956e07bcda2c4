"""CT201: models that come from a file in one case and are made in the other."""

from __future__ import annotations

import pytest

from .support import SLOTS, check_invariants, migrate, script, unbroken

MADE = 'if resume:\n    model = torch.load("net.pt", map_location=device)\nelse:\n    model = nn.Linear(8, 3).to(device)'


def test_a_model_that_a_file_may_hold_is_prepared_by_its_name() -> None:
    """`model.parameters()` are those of what `prepare(model)` gets, wherever that is from."""
    text = script({**SLOTS, "options": "resume = False", "model": MADE})
    result = migrate(text)
    check_invariants(text, result)
    assert "accelerator.prepare(model, optimizer, train_loader)" in unbroken(result.after)


@pytest.mark.parametrize("parameters", ["[*model.parameters(), loose]", "loose.parameters()"])
def test_what_else_the_optimizer_gets_is_refused(parameters: str) -> None:
    slots = {
        "options": "resume = False",
        "model": MADE,
        "optimizer": f'loose = torch.load("loose.pt")\noptimizer = torch.optim.SGD({parameters}, lr=0.1)',
    }
    text = script({**SLOTS, **slots})
    result = migrate(text)
    check_invariants(text, result)
    assert result.refused
