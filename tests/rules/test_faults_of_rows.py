"""Faults that an adversarial trial found: rows that were lost or counted twice, and numbers of one process's share."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from tests.rules.faults import Fault
from tests.rules.support import SLOTS, check_invariants, migrate, script

FAULTS = [
    Fault(
        "what goes into a meter by keywords of its own",
        {
            "definitions": "class Meter:\n    def __init__(self):\n        self.data = []\n\n"
            "    def add(self, **values):\n        self.data.append(values)\n\n\n"
            "def look(model, batch, device):\n    x, y = batch\n    with torch.no_grad():\n"
            '        out = model(x.to(device))\n    return {"n": len(y), "top": out.max().item()}\n',
            "test_data": "test_loader = DataLoader(TensorDataset(torch.ones(21, 8), torch.zeros(21, dtype=torch.long)), batch_size=8)",
            "after_epoch": "model.eval()\nmeter = Meter()\nfor batch in test_loader:\n"
            "    meter.add(**look(model, batch, device))\nprint(meter.data)",
        },
        says="CT603",
    ),
    Fault(
        "one function that measures the training data and the test data gathers once",
        {
            "definitions": "def check_accuracy(loader, model, device):\n    right, total = 0, 0\n    model.eval()\n"
            "    with torch.no_grad():\n        for x, y in loader:\n            x, y = x.to(device), y.to(device)\n"
            "            _, predictions = model(x).max(1)\n            right += (predictions == y).sum()\n"
            "            total += predictions.size(0)\n    model.train()\n    return float(right) / total\n",
            "test_data": "test_loader = DataLoader(TensorDataset(torch.ones(21, 8), torch.zeros(21, dtype=torch.long)), batch_size=8)",
            "end": "print(check_accuracy(train_loader, model, device))\nprint(check_accuracy(test_loader, model, device))",
        },
        holds=("model, optimizer, train_loader, test_loader = accelerator.prepare(",),
        lacks=(
            "predictions, y = accelerator.gather_for_metrics((predictions, y))\n            predictions, y",
        ),
    ),
    Fault(
        "a number of rows that a function returned has no name where it is counted",
        {
            "definitions": "def train_batch(net, opt, batch, device):\n    a, b = batch[0].to(device), batch[1].to(device)\n"
            "    out = net(a)\n    loss = F.cross_entropy(out, b)\n    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"
            "    return loss.item(), a.shape[0]\n",
            "epoch": "total, seen = 0.0, 0",
            "loop": "for batch in train_loader:",
            "batch": "",
            "loss": "",
            "backward": "",
            "step": "value, n = train_batch(model, optimizer, batch, device)\ntotal += value * n\nseen += n",
            "after_epoch": "print(total / seen)",
        },
        lacks=("    a = accelerator.gather_for_metrics(a)\n    total", "len(a)"),
    ),
    Fault(
        "one function for a shared loader and for one that stays whole",
        {
            "definitions": "def measure(model, loader, device):\n    total = 0.0\n    for x, y in loader:\n"
            "        x, y = x.to(device), y.to(device)\n        loss = F.cross_entropy(model(x), y)\n"
            "        total += loss.item() * len(x)\n    return total\n",
            "test_data": "test_loader = DataLoader(TensorDataset(torch.ones(21, 8), torch.zeros(21, dtype=torch.long)), batch_size=8)",
            "after_epoch": "print(measure(model, train_loader, device))\nfor i, b in enumerate(test_loader):\n"
            "    if i == 1:\n        break\nprint(measure(model, test_loader, device))",
        },
        holds=("total += loss.item() * len(x)",),
        lacks=("gather", "reduce("),
        says="CT602",
    ),
    Fault(
        "a gather in a branch that each process draws for itself",
        {"after_step": "if torch.rand(1).item() < 0.5:\n    print(loss.item())"},
        refused="CT904",
    ),
    Fault(
        "a collate function that returns a number of its share",
        {
            "definitions": "def collate(rows):\n    return torch.stack([r[0] for r in rows]), torch.stack([r[1] for r in rows]), "
            "len(rows)",
            "data": "train_set = TensorDataset(torch.ones(47, 8), torch.zeros(47, dtype=torch.long))\n"
            "train_loader = DataLoader(train_set, batch_size=8, collate_fn=collate)",
            "epoch": "total = 0.0",
            "loop": "for x, y, n in train_loader:",
            "after_step": "total += loss.item() * n",
            "after_epoch": "print(total)",
        },
        refused="CT602",
    ),
    Fault(
        "a decision that each process draws for itself",
        {
            "loss": "out = model(x + torch.randn_like(x))\nloss = F.cross_entropy(out, y)\n"
            "if torch.rand(1).item() < 0.5:\n    loss = loss * 2",
        },
        says="CT904",
    ),
    Fault(
        "a buffer whose parts a module adds to",
        {
            "definitions": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            '        self.layer = nn.Linear(8, 3)\n        self.register_buffer("use", torch.zeros(3))\n\n'
            "    def forward(self, x):\n        out = self.layer(x)\n        self.use[1:] += out.detach().sum(0)[1:]\n        return out",
            "model": "model = Net().to(device)",
        },
        refused="CT602",
    ),
    Fault(
        "a queue that a module fills with rows",
        {
            "definitions": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            '        self.layer = nn.Linear(8, 3)\n        self.register_buffer("queue", torch.zeros(64, 3))\n\n'
            "    def forward(self, x):\n        out = self.layer(x)\n        self.queue[: len(x)] = out.detach()\n        return out",
            "model": "model = Net().to(device)",
        },
        refused="CT602",
    ),
    Fault(
        "a list of numbers that a module keeps",
        {
            "definitions": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.layer = nn.Linear(8, 3)\n        self.seen = []\n\n"
            '    def forward(self, x):\n        out = self.layer(x)\n        self.seen.append({"mean": out.detach().mean(), "n": len(x)})\n        return out',
            "model": "model = Net().to(device)",
        },
        refused="CT602",
    ),
    Fault(
        "labels that are moved where the loss is computed are gathered with the outputs",
        {
            "test_data": "test_set = TensorDataset(torch.ones(21, 8), torch.zeros(21, dtype=torch.long))\n"
            "test_loader = DataLoader(test_set, batch_size=8)",
            "definitions": "def look(model, batch, device):\n"
            "    x, y = batch\n"
            "    with torch.no_grad():\n"
            "        out = model(x.to(device))\n"
            "        loss = F.cross_entropy(out, y.to(device))\n"
            '    return {"loss": loss.item(), "right": (out.argmax(1).cpu() == y).float().mean().item()}\n',
            "after_epoch": "model.eval()\nseen = []\nfor batch in test_loader:\n"
            "    seen.append(look(model, batch, device))\nprint(seen)",
        },
        lacks=("gather_for_metrics(out), y)",),
        holds=("accelerator.gather_for_metrics(y)",),
    ),
    Fault(
        "rows gathered in front of the forward pass",
        {
            "definitions": "def flip(x, y):\n    return x.flip(1), y",
            "batch": "x, y = x.to(device), y.to(device)\nx, y = flip(x, y)",
        },
        holds=("x, y = flip(x, y)",),
        lacks=("gather_for_metrics",),
    ),
    Fault(
        "gathered inside a module",
        {
            "definitions": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.layer = nn.Linear(8, 3)\n\n"
            "    def forward(self, x):\n        out = []\n        for part in x.split(4, dim=1):\n"
            "            out.append(part)\n        return self.layer(torch.cat(out, dim=1))",
            "model": "model = Net().to(device)",
        },
        holds=("            out.append(part)",),
        lacks=("gather_for_metrics",),
    ),
    Fault(
        "a module that keeps a running mean of its rank's rows",
        {
            "definitions": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.layer = nn.Linear(8, 3)\n        self.seen = 0\n\n"
            "    def forward(self, x):\n        self.seen += x.shape[0]\n        return self.layer(x)",
            "model": "model = Net().to(device)",
        },
        refused="CT602",
    ),
    Fault(
        "rows bound anew that the loss is made of",
        {
            "loss": 'out = model(x)\nrows = F.cross_entropy(out, y, reduction="none")\n'
            "print(rows.max().item())\nworst = rows[rows > 0]\nloss = worst.mean()"
        },
        lacks=("rows = accelerator.gather_for_metrics(rows)",),
    ),
    Fault(
        "an index of rows, a value of all ranks' rows",
        {"setup": "seen = torch.zeros(3)", "after_step": "seen[y] += 1"},
        holds=("seen[y] += 1",),
        says="CT602",
    ),
    Fault(
        "counted row by row",
        {
            "setup": "seen = [0, 0, 0]",
            "after_step": "for label in y:\n    seen[label] += 1",
        },
        holds=("y = accelerator.gather_for_metrics(y)\n        for label in y:",),
    ),
    Fault(
        "gathered again at every turn of an inner loop",
        {
            "setup": "counts = [0, 0, 0]",
            "after_step": "guess = out.argmax(1)\nfor c in range(3):\n"
            "    counts[c] += ((guess == c) & (y == c)).sum().item()",
        },
        lacks=("    guess, y = accelerator.gather_for_metrics((guess, y))\n            counts",),
    ),
    Fault(
        "a mask of this rank's rows on all ranks' rows",
        {"after_step": "wrong = x[out.argmax(1) != y]\nprint(len(wrong))"},
        lacks=("gather_for_metrics(x)[out.argmax(1) != y]",),
    ),
    Fault(
        "a sum over rows beside a mean loss is never completed with rows that count twice",
        {
            "loss": "out = model(x)\nn = (y > 0).sum()\nloss = F.cross_entropy(out, y, reduction='sum') / n",
            "after_step": "print(n.item())",
        },
        holds=('Accelerator(even_batches="weighted")',),
    ),
    Fault(
        "a size that NumPy reads as a number, not as a shape",
        {
            "imports": "import numpy as np",
            "setup": "sizes = []",
            "after_step": "sizes.append(np.sqrt(len(x)))",
            "after_epoch": "print(sizes)",
        },
        lacks=("sizes.append(np.sqrt(len(x)))",),
    ),
    Fault(
        "the largest batch so far",
        {"setup": "largest = 0", "after_step": "largest = max(largest, len(x))\nprint(largest)"},
        says="CT602",
    ),
    Fault(
        "a mean over batches that divides by a number computed by hand",
        {
            "imports": "import math",
            "setup": "steps = math.ceil(48 / 8)\ntotal = 0.0",
            "after_step": "total += loss.item()",
            "after_epoch": "print(total / steps)",
        },
        says="CT602",
    ),
    Fault(
        "rows dropped by a collate function that copies the batch first",
        {
            "imports": "from torch.utils.data import default_collate",
            "definitions": "def whole(batch):\n"
            "    return default_collate([row for row in list(batch) if row is not None])",
            "data": "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
            "train_loader = DataLoader(train_set, batch_size=8, collate_fn=whole)",
            "after_step": "print((out.argmax(1) == y).sum().item())",
        },
        says="CT602",  # assumed to keep its rows, which the runtime checks
    ),
    Fault(
        "rows gathered before a training step of the script's own gets them",
        {
            "definitions": "def step(model, optimizer, x, y):\n    optimizer.zero_grad()\n"
            "    loss = F.cross_entropy(model(x), y)\n    loss.backward()\n    optimizer.step()\n"
            "    return loss.detach()",
            "setup": "total = torch.zeros(2)",
            "loss": "total[0] += step(model, optimizer, x, y) * len(y)\ntotal[1] += len(y)",
            "backward": "",
            "step": "",
        },
        holds=("step(model, optimizer, x, y)",),
        lacks=("y = accelerator.gather_for_metrics(y)",),
    ),
    Fault(
        "the loss of the batch before, kept and compared with this one's",
        {
            "setup": "last = None",
            "after_step": "if last is not None and loss > last:\n    print(epoch)\nlast = loss.detach()",
        },
        holds=(
            '        loss = accelerator.reduce(loss, reduction="mean")\n        if last is not None and loss > last:',
            "last = loss.detach()",
        ),
    ),
    Fault(
        "a hidden state that is carried from batch to batch stays the process's own",
        {
            "setup": "state = None",
            "loss": "if state is not None:\n    x = x + state.mean()\nout = model(x)\nstate = x.detach()\n"
            "loss = F.cross_entropy(out, y)",
        },
        lacks=("state = accelerator",),
    ),
    Fault(
        "identity is no reading of a number",
        {
            "setup": "last = None",
            "after_step": "if last is not None:\n    print(loss.item())\nlast = loss.detach()",
        },
        holds=("if last is not None:",),
    ),
    Fault(
        "labels that were filtered have not the rows of the batch",
        {"epoch": "seen = 0", "after_step": "y = y[y > 0]\nseen += x.size(0)", "after_epoch": "print(seen)"},
        holds=("seen += accelerator.global_rows(x)",),
    ),
    Fault(
        "another loader's labels have not the rows of the batch",
        {
            "test_data": "others = DataLoader(train_set, batch_size=4, shuffle=True)",
            "epoch": "seen = 0",
            "loop": "for (x, y), (u, v) in zip(train_loader, others):",
            "loss": "loss = F.cross_entropy(model(x), y) + F.cross_entropy(model(u), v)",
            "after_step": "seen += x.size(0)",
            "after_epoch": "print(seen)",
        },
        holds=("seen += accelerator.global_rows(x)",),
    ),
    Fault(
        "all processes leave the loop at the same batch",
        {
            "epoch": "last = None",
            "after_step": "if last is not None and x.size(0) != last.size(0):\n    break\nlast = x",
        },
        holds=(
            "x, y = accelerator.gather_for_metrics((x, y))\n        if last is not None and y.size(0) != last.size(0):",
        ),
    ),
]

COUNTER = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

seen = 0


def step(model, optimizer, x, y):
    global seen
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()
    seen += x.shape[0]


loader = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long)), batch_size=8)
model = nn.Linear(8, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    step(model, optimizer, x, y)
print(seen)
"""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault) -> None:
    fault.check()


def test_a_counter_of_an_outer_scope_counts_all_rows() -> None:
    """`print(seen)` once became the number of rows of the last batch, on one process too."""
    result = migrate(COUNTER)
    check_invariants(COUNTER, result)
    assert "accelerator.print(seen)" in result.after
    assert "    seen += x.shape[0]" not in result.after


def test_accelerate_says_that_a_sum_counts_rows_twice() -> None:
    loss = "out = model(x)\nn = (y > 0).sum()\nloss = F.cross_entropy(out, y, reduction='sum') / n"
    text = script({**SLOTS, "loss": loss, "after_step": "print(n.item())"})
    result = migrate_text(Path("train.py"), text, Options(runtime="accelerate"))
    assert 'accelerator.reduce(n, reduction="sum")' in result.after
    assert any("fills up the last batch" in f.reason for f in result.findings)
