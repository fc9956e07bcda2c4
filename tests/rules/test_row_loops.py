"""CT602: loops over the rows of a batch."""

from __future__ import annotations

import pytest

from .faults import Fault

FAULTS = [
    Fault(
        "rows that are drawn one by one",
        {
            "imports": "import matplotlib.pyplot as plt",
            "setup": "shown = 0",
            "after_step": "guess = out.argmax(1)\nfor j in range(x.size()[0]):\n    shown += 1\n    plt.subplot(2, 3, shown)\n"
            "    plt.title(str(guess[j].item()))\n    plt.imshow(x.cpu()[j].reshape(2, 4))",
        },
        holds=(
            "guess, x = accelerator.gather_for_metrics((guess, x))\n        for j in range(x.size()[0]):",
        ),
    ),
    Fault(
        "rows that are printed beside their labels",
        {"after_step": 'for a, b in zip(out.argmax(1), y):\n    print(f"{a.item()} {b.item()}")'},
        holds=(
            "out, y = accelerator.gather_for_metrics((out, y))\n        for a, b in zip(out.argmax(1), y):",
        ),
    ),
    Fault(
        "rows counted by what they are",
        {
            "setup": "right = [0, 0, 0]",
            "after_step": "guess = out.argmax(1)\nfor a, b in zip(guess, y):\n    if a == b:\n        right[b.item()] += 1",
            "after_epoch": "print(right)",
        },
        holds=("guess, y = accelerator.gather_for_metrics((guess, y))\n        for a, b in zip(guess, y):",),
    ),
    Fault(
        "rows with their numbers",
        {
            "setup": "right = 0",
            "after_step": "guess = out.argmax(1)\nfor j, a in enumerate(guess):\n    right += int(a == y[j])",
            "after_epoch": "print(right)",
        },
        holds=(
            "guess, y = accelerator.gather_for_metrics((guess, y))\n        for j, a in enumerate(guess):",
        ),
    ),
    Fault(
        "a loop that runs the model row by row",
        {
            "setup": "total = 0.0",
            "after_step": "for row in x:\n    total += model(row[None]).sum().item()",
            "after_epoch": "print(total)",
        },
        refused="CT602",
    ),
    Fault(
        "rows that training needs as they are afterwards",
        {
            "setup": "kept = []",
            "batch": "x, y = x.to(device), y.to(device)\nfor row in x:\n    kept.append(row.sum().item())",
            "after_epoch": "print(sum(kept))",
        },
        refused="CT602",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_row_loops(fault: Fault) -> None:
    fault.check()
