"""What is measured after each step of a script, and what is told after an epoch."""

from __future__ import annotations

from .support import Case, converts

RULE = "CT602"
LOSS = 'accelerator.reduce(loss, reduction="mean")'
DEVICE = "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"
COUNT = "len(accelerator.gather_for_metrics(y))"
METER = """\
class Meter:
    def __init__(self):
        self.total = 0.0
        self.count = 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n
"""
ENUMERATED = {"loop": "for i, (x, y) in enumerate(train_loader):"}


def step(name: str, before: str, after: str, **more: str) -> Case:
    """Something measured after each step."""
    return converts(RULE, name, {"after_step": before, **more}, {"after_step": after})


def summed(name: str, start: str, before: str, after: str, told: str, **more: str) -> Case:
    """Something summed up over an epoch and told after it."""
    return converts(
        RULE,
        name,
        {"after_step": before, "epoch": f"model.train()\n{start}", "after_epoch": f"print({told})", **more},
        {"after_step": after, "after_epoch": f"accelerator.print({told})"},
        at=next(line for line in before.split("\n") if line not in after.split("\n"))
        if before != after
        else "",
    )
