"""Loaders that the script looks at, or whose batches it counts, before it trains with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .converting import converted
from .projects import convert, train, write
from .support import Trap, check
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


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_prepare(trap: Trap) -> None:
    check(trap)


RESUMED = """
<torch>

rows = torch.arange(16.0).view(16, 1)
loader = DataLoader(TensorDataset(rows), batch_size=2)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
number = len(loader)
result = 0
try:
    with torch.enable_grad():
        for epoch in range(3):
            done = {done}
            for i, (x,) in enumerate(loader):
                if i < result - done * 8:
                    continue
                optimizer.zero_grad()
                torch.nn.functional.mse_loss(model(x), x).backward()
                optimizer.step()
                result += 1
except KeyboardInterrupt:
    print("stopped")
"""


def test_batches_that_are_counted_above_a_try_are_those_of_a_process(tmp_path: Path) -> None:
    text = RESUMED.format(done="result // number").replace("done * 8", "done * number")
    folder = write(tmp_path, script=text)
    before = train(folder, "script")
    convert(folder, "script")
    assert before == [24] and train(folder, "script", 2) == [12, 12]


def test_a_number_that_counts_no_batches_leaves_the_loader_within_the_try() -> None:
    after = converted(RESUMED.format(done="0"))
    assert after.index("try:") < after.index(PREPARED)
