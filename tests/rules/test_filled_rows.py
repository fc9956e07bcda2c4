"""CT602: tensors that are made for a batch and filled row by row."""

from __future__ import annotations

import pytest

from .as_one import check_two_are_one
from .faults import Fault

PADDED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
WORDS = [("a", 0), ("bee", 1), ("cc", 0), ("deed", 1), ("ace", 0), ("be", 1), ("dad", 0), ("c", 1)]


class Labels:
    def __init__(self, names):
        self.names = names

    def number(self, name):
        return self.names.index(name)


labels = Labels(["no", "yes"])
data = [(word, labels.names[label]) for word, label in WORDS * 3]
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Embedding(128, 4, padding_idx=0), nn.Flatten(), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def padded(words, answers):
    rows = [[ord(letter) for letter in word] for word in words]
    tensor = torch.zeros(len(rows), 4).long()
    for place, row in enumerate(rows):
        tensor[place, : len(row)] = torch.LongTensor(row)
    target = torch.LongTensor([labels.number(answer) for answer in answers])
    if len(answers):
        target = target.clone()
    return tensor, target


def train():
    for step, (words, answers) in enumerate(loader):
        x, y = padded(words, answers)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        print(step, len(words), loss.item())


for epoch in range(2):
    train()
weights = [p.tolist() for p in model.parameters()]
"""
FILLED = "filled = torch.zeros(len(x), 8)\nfor place, row in enumerate(x):\n    filled[place] = row * 2"
FAULTS = [
    Fault(
        "a tensor of the batch, filled and trained on",
        {"loss": f"{FILLED}\nout = model(filled.to(device))\nloss = F.cross_entropy(out, y)"},
        holds=("filled[place] = row * 2", "accelerator.backward(loss)"),
        lacks=("gather", "broadcast"),
    ),
    Fault(
        "one that is older than the batch, and trained on",
        {
            "setup": "filled = torch.zeros(48, 8)",
            "loss": "for place, row in enumerate(x):\n    filled[place] = row * 2\n"
            "out = model(filled[: len(x)].to(device))\nloss = F.cross_entropy(out, y)",
        },
        refused="CT602",
    ),
    Fault(
        "one that is filled beside a count of rows",
        {
            "setup": "seen = 0",
            "loss": FILLED.replace("row * 2", "row * 2\n    seen += 1")
            + "\nout = model(filled.to(device))\nloss = F.cross_entropy(out, y)",
            "after_epoch": "print(seen)",
        },
        lacks=("gather",),
        says="CT602",
    ),
    Fault(
        "one that is filled to be shown",
        {
            "after_step": "sums = torch.zeros(len(x))\nfor place, row in enumerate(x):\n    sums[place] = row.sum()\n"
            "print(sums.sum().item())",
        },
        holds=("accelerator.print(accelerator.gather_for_metrics(sums).sum().item())",),
    ),
    Fault(
        "labels that are drawn anew row by row, from a list of each turn",
        {
            "definitions": "def others(labels):\n    drawn = labels.clone()\n    for place, label in enumerate(labels):\n"
            "        left = [0, 1, 2]\n        left.append(label.item())\n"
            "        drawn[place] = torch.tensor(left)[torch.randint(4, size=(1,))].item()\n    return drawn",
            "loss": "out = model(x)\nloss = F.cross_entropy(out, y) - F.cross_entropy(out, others(y)) / 9",
        },
        holds=("accelerator.backward(loss)",),
        lacks=("gather",),
        says="CT602",
    ),
    Fault(
        "a test for rows, of which every process has some",
        {"loss": "out = model(x)\nif len(y):\n    out = out * 2\nloss = F.cross_entropy(out, y)"},
        holds=("if len(y):",),
        lacks=("broadcast",),
    ),
    Fault(
        "a test for how many rows, of which a process has a part",
        {"loss": "out = model(x)\nif len(y) > 4:\n    out = out * 2\nloss = F.cross_entropy(out, y)"},
        holds=("if accelerator.global_rows(y) > 4:",),
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_filled_rows(fault: Fault) -> None:
    fault.check()


def test_sequences_padded_in_a_loop_train_alike_on_two_processes() -> None:
    """Scripts that make tensors of strings pad them row by row, in a function that training calls."""
    check_two_are_one(PADDED)
