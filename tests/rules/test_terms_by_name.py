"""CT602: a term of the trained loss that is stored by name keeps its gradient: it is read, and never gathered."""

from __future__ import annotations

import ast

import pytest
from crosstrain_migrate.rules.base import Context

from .faults import Fault
from .support import SLOTS, migrate, script

HEADS = """\
class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.main, self.side = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        return {"out": self.main(x), "aux": self.side(x)}


def criterion(outputs, target):
    losses = {}
    for name, out in outputs.items():
        losses[name] = F.cross_entropy(out, target)
    return TOTAL
"""
TERMS = """\
class Terms:
    def __init__(self):
        self.values = {}

    def put(self, name, value):
        self.values[name] = value

    def total(self):
        return sum(self.values.values())
"""
SHOWN = 'accelerator.print(accelerator.reduce(loss, reduction="mean").item())'


def by_name(name: str, total: str) -> Fault:
    """The heads' losses in a dictionary, added up in some way."""
    slots = {
        "definitions": HEADS.replace("TOTAL", total),
        "model": "model = Heads().to(device)",
        "loss": "loss = criterion(model(x), y)",
        "after_step": "print(loss.item())",
    }
    return Fault(name, slots, holds=(SHOWN,), lacks=("gather", "def criterion(accelerator"))


def stored(name: str, loss: str, definitions: str = "") -> Fault:
    slots = {"definitions": definitions, "loss": loss, "after_step": "print(loss.item())"}
    return Fault(name, slots, holds=(SHOWN,), lacks=("gather",))


FAULTS = [
    by_name("by two names", 'losses["out"] + 0.5 * losses["aux"]'),
    by_name("all of them", "sum(losses.values())"),
    by_name("one after the other", "sum(v for v in losses.values())"),
    by_name("stacked", "torch.stack(list(losses.values())).sum()"),
    stored(
        "in a list",
        "parts = []\nparts.append(F.cross_entropy(model(x), y))\nparts.append(model(x).pow(2).mean())\nloss = sum(parts)",
    ),
    stored(
        "in an object of the script's own",
        'terms = Terms()\nterms.put("a", F.cross_entropy(model(x), y))\nloss = terms.total()',
        TERMS,
    ),
    stored(
        "in an attribute",
        "state.extra = model(x).pow(2).mean()\nloss = F.cross_entropy(model(x), y) + state.extra",
        "class State:\n    pass\n\n\nstate = State()\n",
    ),
    stored(
        "updated",
        'parts = {}\nparts.update(a=F.cross_entropy(model(x), y))\nparts["b"] = model(x).pow(2).mean()\nloss = sum(parts.values())',
    ),
    Fault(
        "of a model from elsewhere that returns a dictionary",
        {
            "imports": "import torchvision",
            "definitions": HEADS.replace("TOTAL", 'losses["out"] + 0.5 * losses["aux"]'),
            "model": 'model = torchvision.models.get_model("fcn").to(device)',
            "loss": "loss = criterion(model(x), y)",
            "after_step": "print(loss.item())",
        },
        holds=(SHOWN,),
        lacks=("gather",),
    ),
    Fault(
        "beside what is only counted",
        {
            "epoch": "hits = {}",
            "loss": 'out = model(x)\nlosses = {}\nlosses["a"] = F.cross_entropy(out, y)\nloss = losses["a"]',
            "after_step": 'hits["all"] = hits.get("all", 0) + (out.argmax(1) == y).sum().item()',
            "after_epoch": "print(hits)",
        },
        holds=("gather_for_metrics(out.argmax(1) == y)",),
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_term_that_is_stored(fault: Fault) -> None:
    fault.check()


@pytest.mark.parametrize("planted", ["out", "F.cross_entropy(out, y)"])
def test_a_gather_of_what_is_trained_is_refused_whoever_plans_it(
    planted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def plan(context: Context) -> None:
        node = next(n for n in context.facts.loss_slice if context.source(n) == planted)
        assert isinstance(node, ast.expr)
        context.replace(node, "CT602", "planted", "accelerator.gather_for_metrics({x})", x=node)
        context.collective.add(node)

    monkeypatch.setattr("crosstrain_migrate.rules.numbers.training.plan", plan)
    result = migrate(script(SLOTS))
    assert result.refused
    assert any("what is gathered has no gradient" in f.reason for f in result.findings)


DETECTOR = """\
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 3)

    def forward(self, x, y):
        out = self.body(x)
        kind = sum(F.cross_entropy(o[None], t[None]) for o, t in zip(out, y)) / len(y)
        size = sum(o.square().mean() for o in out) / len(y)
        return {"kind": kind, "size": size}
"""


def test_terms_that_a_model_returns_by_name_are_shown_of_all_processes() -> None:
    """As detection models do: the loss is the sum of what a dictionary holds, and a log shows each term."""
    result = migrate(
        script(
            {
                **SLOTS,
                "definitions": DETECTOR,
                "model": "model = Detector().to(device)",
                "loss": "losses = model(x, y)\nloss = sum(term for term in losses.values())",
                "after_step": "print({k: round(v.item(), 4) for k, v in losses.items()})",
            }
        )
    )
    assert (
        'round(accelerator.reduce(v, reduction="mean").item(), 4) for k, v in losses.items()' in result.after
    )
