"""CT902: training without a DataLoader is converted for its placement, and said to be the same work on every rank."""

from __future__ import annotations

from .support import Case, each, leaves, refuses

RULE = "CT902"
PREPARED = {
    "prepare": "model, optimizer = accelerator.prepare(model, optimizer)",
    "device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is",
}


def alone(name: str, before: dict[str, str], **after: str) -> Case:
    """Converted, but for the data: the device stays, because nothing else moves them."""
    return leaves(RULE, name, before, {**before, **PREPARED, **after}, findings=((RULE, "loss.backward()"),))


CONVERTED = [
    alone(
        "all data at once",
        {
            "data": "x = torch.ones(8, 8).to(device)\ny = torch.zeros(8, dtype=torch.long).to(device)",
            "loop": "for _ in range(4):",
            "batch": "",
        },
    ),
    alone(
        "batches cut by hand",
        {
            "data": "points = torch.ones(48, 8)\nlabels = torch.zeros(48, dtype=torch.long)",
            "loop": "for i in range(0, 48, 8):",
            "batch": "x, y = points[i : i + 8].to(device), labels[i : i + 8].to(device)",
        },
    ),
    alone(
        "batches cut by hand, counted",
        {
            "data": "points = torch.ones(48, 8)\nlabels = torch.zeros(48, dtype=torch.long)",
            "loop": "for n, i in enumerate(range(0, 48, 8)):",
            "batch": "x, y = points[i : i + 8].to(device), labels[i : i + 8].to(device)",
        },
    ),
    alone(
        "experience instead of data",
        {
            "data": "memory = []",
            "loop": "for _ in range(4):",
            "batch": "x = torch.stack([torch.ones(8) for _ in range(8)]).to(device)\n"
            "y = torch.zeros(8, dtype=torch.long).to(device)",
        },
    ),
]

REFUSED = [
    refuses(
        RULE,
        "batches of an unknown library",
        {
            "imports": "from texts import BucketIterator",
            "data": "train_iter = BucketIterator(batch_size=8)",
            "loop": "for x, y in train_iter:",
        },
        at="for x, y in train_iter:",
    ),
    refuses(
        RULE,
        "batches of an unknown library, counted",
        {
            "imports": "from texts import BucketIterator",
            "data": "train_iter = BucketIterator(batch_size=8)",
            "loop": "for i, (x, y) in enumerate(train_iter):",
        },
        at="for i, (x, y)",
    ),
    refuses(
        RULE,
        "on the CPU, without a word of a device",
        {
            "device": "",
            "model": "model = nn.Linear(8, 3)",
            "data": "x = torch.ones(8, 8)\ny = torch.zeros(8, dtype=torch.long)",
            "loop": "for _ in range(4):",
            "batch": "",
        },
        at="loss.backward()",
    ),
]


@each(CONVERTED, REFUSED)
def test_without_loader(case: Case) -> None:
    case.check()
