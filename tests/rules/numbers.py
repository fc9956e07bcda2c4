"""What is measured after each step of a script, and what is told after an epoch."""

from __future__ import annotations

from .support import Case, converts

RULE = "CT602"
LOSS = 'accelerator.reduce(loss, reduction="mean")'
DEVICE = "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"
WEIGHTED = "accelerator.weighted(loss).item()"  # what each process adds up
COUNT = "accelerator.global_rows(x)"
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


def reduced(*names: str) -> str:
    """What stands where totals are read."""
    both = f"({', '.join(names)})" if len(names) > 1 else names[0]
    return f'{", ".join(names)} = accelerator.reduce({both}, reduction="mean")'


def step(name: str, before: str, after: str, **more: str) -> Case:
    """Something measured after each step."""
    return converts(RULE, name, {"after_step": before, **more}, {"after_step": after})


def summed(name: str, start: str, before: str, after: str, told: str, **more: str) -> Case:
    """Something summed up over an epoch and told after it; a loss is reduced there."""
    reduces = {"after_loop": reduced("total")} if "accelerator.weighted(" in after else {}
    return converts(
        RULE,
        name,
        {"after_step": before, "epoch": f"model.train()\n{start}", "after_epoch": f"print({told})", **more},
        {"after_step": after, "after_epoch": f"accelerator.print({told})", **reduces},
        at=next(line for line in before.split("\n") if line not in after.split("\n"))
        if before != after
        else "",
    )
