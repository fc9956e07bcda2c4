"""Loaders that the script looks at, or whose batches it counts, before it trains with them."""

from .support import Trap, case_by_case
from .test_prepare import LOOP, MADE

PREPARED = "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)"
SCHEDULE = "torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=batches)"


def counted(name: str, before: str, *lines: str, begin: str = "pass", shown: str = "batches") -> Trap:
    """A loop that says how many batches there are; `before` stands in front of it."""
    loop = f"""{MADE}{before}
for epoch in range(3):
    {begin}
    for n, (x, y) in enumerate(loader):
        <step loss = F.cross_entropy(model(x), y)>
        print(n, "of", {shown})
"""
    return Trap(name, loop, lines)


TRAPS = [
    counted(
        "a loader whose first batch is looked at before",
        "show(next(iter(loader)))",
        "show(next(iter(loader)))",
        PREPARED,
        "for n, (x, y) in enumerate(loader):",
        'accelerator.print(n, "of", len(loader))',
        shown="len(loader)",
    ),
    counted(
        "a loader whose batches are counted before the loop that shows the number",
        "batches = len(loader)",
        PREPARED,
        "batches = len(loader)",
        "for epoch in range(3):",
    ),
    counted(
        "a loader whose number of batches a schedule of torch is made for",
        "batches = len(loader)",
        "batches = len(loader)",
        PREPARED,
        "for epoch in range(3):",
        begin=f"scheduler = {SCHEDULE}",
    ),
    Trap(
        "a loader whose batches are looked at between two loops that train",
        f"{MADE}other = DataLoader(data)\n{LOOP.replace('loader', 'other')}show(next(iter(loader)))\n{LOOP}",
        ("show(next(iter(loader)))", "for x, y in accelerator.prepare(loader):"),
    ),
]
test_prepare = case_by_case(TRAPS)
