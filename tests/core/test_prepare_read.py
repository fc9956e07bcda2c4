"""Loaders that the script looks at, or whose batches it counts, before it trains with them."""

from __future__ import annotations

import pytest

from .support import Trap, check

COUNTED = """
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(data)
        batches = len(loader)
        for epoch in range(3):
            {begin}
            for n, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                print(n, "of", batches)
        """

TRAPS = [
    Trap(
        "a loader whose first batch is looked at before",
        """
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader = DataLoader(data)
        show(next(iter(loader)))
        for epoch in range(3):
            for n, (x, y) in enumerate(loader):
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                optimizer.step()
                print(n, "of", len(loader))
        """,
        (
            "show(next(iter(loader)))",
            "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            "for n, (x, y) in enumerate(loader):",
            'accelerator.print(n, "of", len(loader))',
        ),
    ),
    Trap(
        "a loader whose batches are counted before the loop that shows the number",
        COUNTED.format(begin="pass"),
        (
            "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            "batches = len(loader)",
            "for epoch in range(3):",
        ),
    ),
    Trap(
        "a loader whose number of batches a schedule of torch is made for",
        COUNTED.format(
            begin="scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=batches)"
        ),
        (
            "batches = len(loader)",
            "model, optimizer, loader = accelerator.prepare(model, optimizer, loader)",
            "for epoch in range(3):",
        ),
    ),
    Trap(
        "a loader whose batches are looked at between two loops that train",
        """
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        loader, other = DataLoader(data), DataLoader(data)
        for x, y in other:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        show(next(iter(loader)))
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        """,
        ("show(next(iter(loader)))", "for x, y in accelerator.prepare(loader):"),
    ),
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda trap: trap.name)
def test_prepare(trap: Trap) -> None:
    check(trap)
