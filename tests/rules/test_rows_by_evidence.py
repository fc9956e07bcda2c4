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
    assert "hits += accelerator.weighted(loss).item()" in result.after
    assert not [f for f in result.findings if "neither a mean nor a sum" in f.reason]


BY_OWN_MEANS = """\
class Pieces(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, x):
        y = self.inner(x)
        return y.view((-1, 2) + y.size()[1:]).mean(dim=1)
"""


def test_what_a_loss_compares_with_the_labels_has_their_rows() -> None:
    """A forward that cuts the batch into pieces and puts it together again."""
    text = script(
        {
            **SLOTS,
            "definitions": f"{BY_OWN_MEANS}\n\ndef hits_of(guess, y):\n    return (guess.topk(1)[1].t() == y.view(1, -1)).sum()",
            "model": "model = Pieces().to(device)",
            "epoch": "hits = 0",
            "loss": "out = model(x)\nloss = F.cross_entropy(out, y)",
            "after_step": "hits += hits_of(out, y).item()",
            "after_epoch": "print(hits)",
        }
    )
    after = migrate(text).after
    assert "out, y = accelerator.gather_for_metrics((out, y))" in after
    assert "hits += hits_of(out, y).item()" in after
    assert [a for a in assumptions(text) if "the labels that go into the loss with it" in a]


def test_pairs_have_no_labels_of_their_own() -> None:
    """A loss of pairs says nothing of rows."""
    text = script(
        {
            **SLOTS,
            "definitions": BY_OWN_MEANS,
            "model": "model = Pieces().to(device)",
            "loss": "out = model(x)\nloss = F.cosine_embedding_loss(out, x, y)",
            "after_step": "print(out.sum().item())",
        }
    )
    assert not assumptions(text)
