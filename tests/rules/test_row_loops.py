"""CT602: loops over the rows of a batch."""

from __future__ import annotations

import pytest

from .faults import Fault

POOL = """\
class Pool:
    def __init__(self):
        self.rows = []

    def query(self, rows):
        found = []
        for row in rows.data:
            row = row.unsqueeze(0)
            if len(self.rows) < 4:
                self.rows.append(row)
                found.append(row)
            else:
                found.append(self.rows[0].clone())
                self.rows[0] = row
        return torch.cat(found){more}
"""
POOLED = {
    "definitions": POOL.format(more=""),
    "setup": "pool = Pool()",
    "loss": "out = model(x)\nloss = F.cross_entropy(out, y) + model(pool.query(x)).pow(2).mean()",
    "after_step": "print(loss.item())",
}

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
        holds=("for row in x:", "total += model(row[None]).sum().item()"),
        says="CT602",
    ),
    Fault(
        "rows that are kept for later steps of training",
        POOLED,
        holds=(
            'accelerator.print(accelerator.reduce(loss, reduction="mean").item())',
            "        for row in rows.data:",
        ),
        lacks=("gather_for_metrics",),
        says="CT605",
    ),
    Fault(
        "rows that are kept for later steps, and read elsewhere",
        {**POOLED, "after_step": "print(len(pool.rows))"},
        refused="CT602",
    ),
    Fault(
        "rows that are kept for later steps, and summed up",
        {
            **POOLED,
            "definitions": POOL.format(
                more="\n\n    def total(self):\n        return sum(r.sum().item() for r in self.rows)"
            ),
        },
        refused="CT602",
    ),
    Fault(
        "a term of the trained loss that is no mean over rows",
        {
            "definitions": "class Spread(nn.Module):\n    def forward(self, z):\n        return torch.cdist(z, z).max()\n",
            "setup": "spread = Spread()",
            "loss": "out = model(x)\nfar = spread(out) * 0.1\nloss = F.cross_entropy(out, y) + far",
            "after_step": "print(far.item())",
        },
        holds=('accelerator.print(accelerator.reduce(far, reduction="mean").item())',),
        says="CT602",
    ),
    Fault(
        "such a term, read as data",
        {
            "definitions": "class Spread(nn.Module):\n    def forward(self, z):\n        return torch.cdist(z, z).max()\n",
            "setup": "spread = Spread()",
            "loss": "out = model(x)\nfar = spread(out) * 0.1\nloss = F.cross_entropy(out, y) + far",
            "after_step": "print(far.data.item())",
        },
        holds=('accelerator.print(accelerator.reduce(far.data, reduction="mean").item())',),
        says="CT602",
    ),
    Fault(
        "what the trained loss is divided by is no term of it",
        {
            "definitions": "class Spread(nn.Module):\n    def forward(self, z):\n        return torch.cdist(z, z).max()\n",
            "setup": "spread = Spread()",
            "loss": "out = model(x)\nfar = spread(out)\nloss = F.cross_entropy(out, y) / far",
            "after_step": "print(far.item())",
        },
        holds=("accelerator.print(far.item())",),
        says="CT602",
    ),
    Fault(
        "rows that training needs as they are afterwards",
        {
            "setup": "kept = []",
            "batch": "x, y = x.to(device), y.to(device)\nfor row in x:\n    kept.append(row.sum().item())",
            "after_epoch": "print(sum(kept))",
        },
        lacks=("gather",),
        says="CT602",
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_row_loops(fault: Fault) -> None:
    fault.check()
