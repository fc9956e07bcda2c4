"""CT903: a line search decides by the loss of the global batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .support import SLOTS, Case, Slots, each, leaves, refuses, script

RULE = "CT903"
SEARCH = "optimizer = torch.optim.LBFGS(model.parameters())"
CLOSURE = """\
def closure():
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    {}
    return {}

"""
GLOBAL = 'accelerator.reduce(loss, reduction="mean")'
TAKEN = {"loss": "", "step": "optimizer.step(closure)"}


def searching(returned: str, **more: str) -> dict[str, str]:
    return {
        "optimizer": SEARCH,
        **TAKEN,
        "backward": CLOSURE.format("loss.backward()", returned),
        **more,
    }


def searches(name: str, returned: str, after: str, before: Slots | None = None, **more: str) -> Case:
    """The closure's loss is the global one; `more`: what else changes."""
    closed = CLOSURE.format("accelerator.backward(loss)", after)
    return Case(
        RULE,
        name,
        {**searching(returned), **(before or {})},
        {"backward": closed, **more},
        positive=False,  # the edit is CT602's
    )


POSITIVE = [
    searches("a loss", "loss", GLOBAL),
    searches("a loss that is read", "loss.item()", f"{GLOBAL}.item()"),
    searches(
        "by another name",
        "loss",
        GLOBAL,
        {
            "imports": "from torch.optim import LBFGS as Search",
            "optimizer": "optimizer = Search(model.parameters())",
        },
    ),
    searches("by keyword", "loss", GLOBAL, {"step": "optimizer.step(closure=closure)"}),
    searches(
        "what step returns is global already",
        "loss",
        GLOBAL,
        {"step": "loss = optimizer.step(closure)\nprint(loss.item())"},
        step="loss = optimizer.step(closure)\naccelerator.print(loss.item())",
    ),
    Case(
        RULE,
        "without a loader, where a rank's rounding may differ",
        searching(
            "loss",
            data="x, y = torch.ones(8, 8).to(device), torch.zeros(8).long().to(device)",
            loop="if True:",
            batch="",
        ),
        {
            "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
            "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
            "backward": CLOSURE.format("accelerator.backward(loss)", GLOBAL),
        },
        at="return loss",
        findings=(("CT902", "loss.backward()"),),
    ),
]

NEGATIVE = [
    refuses(
        RULE,
        "a closure that cannot be followed",
        searching("loss", step="optimizer.step(made(closure))", imports="from closures import made"),
        at="optimizer.step",
    ),
    refuses(
        RULE,
        "a closure that cannot be edited",
        searching("loss", step="optimizer.step(lambda: closure())"),
        at="lambda",
    ),
    refuses(RULE, "a closure that returns something else", searching("len(train_set)"), at="return len"),
    leaves(
        RULE,
        "a closure that is evaluated once a step",
        {"step": "optimizer.step(lambda: loss)"},
    ),
    leaves(
        RULE,
        "a closure of an optimizer that does not search",
        {**TAKEN, "backward": CLOSURE.format("loss.backward()", "loss")},
        {"backward": CLOSURE.format("accelerator.backward(loss)", "loss")},
    ),
]


@each(POSITIVE, NEGATIVE)
def test_line_search(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("used", [True, False])
def test_accelerate_returns_nothing_from_step(used: bool) -> None:
    step = "print(optimizer.step(closure))" if used else TAKEN["step"]
    text = script({**SLOTS, **searching("loss", step=step)})
    result = migrate_text(Path("train.py"), text, Options(runtime="accelerate"))
    assert result.refused == used
    assert [f.rule for f in result.findings] == [RULE] * used


METHOD = """\
import torch


class Fit:
    def __init__(self, x):
        self.x = x
        self.net = torch.nn.Linear(2, 1).cuda()
        self.search = torch.optim.LBFGS(self.net.parameters())

    def loss(self):
        self.search.zero_grad()
        loss = self.net(self.x.cuda()).pow(2).mean()
        loss.backward()
        print(loss.item())
        return loss

    def train(self):
        self.search.step(self.loss)


Fit(torch.ones(4, 2)).train()
"""


def test_a_method_may_be_the_closure() -> None:
    result = migrate_text(Path("train.py"), METHOD, Options())
    assert f"return self.{GLOBAL}" in result.after
    assert not result.refused
    assert ("CT401", 14) in {(f.rule, f.line) for f in result.findings}, "every process prints in the closure"
