"""CT602: what is compared with the labels has the labels' rows, and what goes into a loss with them, too: assumed."""

from __future__ import annotations

import pytest
from crosstrain_migrate.results import Severity

from .support import SLOTS, migrate, script

UNSEEN = "import zoo"
MODEL = "model = zoo.build(3).to(device)"
HITS = {
    "compared": "hits += (out.argmax(1) == y).sum().item()",
    "turned round": "hits += (y == out.argmax(1)).sum().item()",
    "by a method": "hits += out.argmax(1).eq(y).sum().item()",
    "of the labels": "hits += y.ne(out.argmax(1)).sum().item()",
}


def assumptions(text: str) -> list[str]:
    return [f.reason for f in migrate(text).findings if f.severity is Severity.ASSUMED and f.kind == "rows"]


def counted(hits: str, loss: str = "out = zoo.mixed(model(x))\nloss = F.cross_entropy(out, y)") -> str:
    slots = {
        "imports": UNSEEN,
        "epoch": "hits = 0",
        "loss": loss,
        "after_step": hits,
        "after_epoch": "print(hits)",
    }
    return script({**SLOTS, **slots})


@pytest.mark.parametrize("hits", HITS.values(), ids=HITS)
def test_hits_of_a_model_that_cannot_be_seen_into(hits: str) -> None:
    result = migrate(counted(hits))
    assert result.changed, result.findings
    assert "accelerator.gather_for_metrics(" in result.after.split("hits += ")[1]
    assert len(assumptions(counted(hits))) == 1


def test_hits_of_a_model_that_can_are_known() -> None:
    text = counted(HITS["compared"], "out = model(x)\nloss = F.cross_entropy(out, y)")
    assert "gather_for_metrics(out.argmax(1) == y)" in migrate(text).after
    assert not assumptions(text)


def test_a_number_that_labels_are_compared_with_is_no_assumption() -> None:
    text = counted("hits += (y == epoch).sum().item()")
    assert "gather_for_metrics" in migrate(text).after
    assert not assumptions(text)


def test_known_transposes_stay_known() -> None:
    """Every sample against every other: of a share, these are other pairs than of the batch."""
    text = counted(
        "hits += (y.unsqueeze(0) == y.unsqueeze(1)).sum().item()",
        "out = model(x)\nloss = F.cross_entropy(out, y)",
    )
    assert "gather_for_metrics(y.unsqueeze(0) == y.unsqueeze(1))" not in migrate(text).after


def test_a_loss_with_the_labels_proves_the_rows_of_the_predictions() -> None:
    result = migrate(counted("hits += loss.item()"))
    assert 'hits += accelerator.reduce(loss, reduction="mean").item()' in result.after
    assert not [f for f in result.findings if "neither a mean nor a sum" in f.reason]
