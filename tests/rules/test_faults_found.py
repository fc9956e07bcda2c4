"""Faults that an adversarial trial of the tool found: conversions that were silently wrong or crashed.

Each case names what was wrong and says which lines the result must hold, must not hold, or the code of the refusal.
Here: what is prepared, where it is placed, and what is written. `test_faults_of_rows`: numbers.
"""

from __future__ import annotations

import pytest

from tests.rules.faults import Fault
from tests.rules.support import check_invariants, migrate

FAULTS = [
    Fault(
        "gradients without backward",
        {
            "backward": "for p, g in zip(model.parameters(), torch.autograd.grad(loss, model.parameters())):\n    p.grad = g"
        },
        refused="CT202",
    ),
    Fault(
        "a loose parameter gets no averaged gradient",
        {
            "optimizer": "s = nn.Parameter(torch.zeros(1))\n"
            "optimizer = torch.optim.SGD([*model.parameters(), s], lr=0.1)"
        },
        refused="CT201",
    ),
    Fault(
        "a part of the model stands for the whole",
        {
            "definitions": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.body = nn.Linear(8, 8)\n        self.head = nn.Linear(8, 3)\n\n"
            "    def forward(self, x):\n        return self.head(self.body(x))",
            "model": "model = Net().to(device)",
            "optimizer": "optimizer = torch.optim.SGD(model.head.parameters(), lr=0.1)",
        },
        holds=("model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)",),
    ),
    Fault(
        "the loss that a step with a closure returns",
        {
            "loss": "def closure():\n    optimizer.zero_grad()\n    loss = F.cross_entropy(model(x), y)\n"
            "    loss.backward()\n    return loss\nprint(optimizer.step(closure).item())",
            "backward": "",
            "step": "",
        },
        lacks=("accelerator.print(optimizer.step(closure).item())",),
    ),
    Fault(
        "a tensor made beside the batch is on the CPU",
        {
            "loss": "noise = torch.rand(x.size(0), 8)\nout = model(x + noise.to(device))\n"
            "loss = F.cross_entropy(out, y)"
        },
        holds=("noise.to(",),
    ),
    Fault(
        "an object that got the model trains it before everything else exists",
        {
            "definitions": "class Finder:\n    def __init__(self, model, optimizer):\n"
            "        self.model, self.optimizer = model, optimizer\n\n"
            "    def run(self, loader):\n        for x, y in loader:\n            self.optimizer.zero_grad()\n"
            "            F.cross_entropy(self.model(x.to(device)), y.to(device)).backward()\n"
            "            self.optimizer.step()\n        return 0.1",
            "optimizer": "finder = Finder(model, torch.optim.SGD(model.parameters(), lr=0.01))\n"
            "optimizer = torch.optim.SGD(model.parameters(), lr=finder.run(train_loader))",
        },
        holds=(
            "model = accelerator.prepare(model)\nfinder = Finder(",
            "        self.optimizer = accelerator.prepare(self.optimizer)",
        ),
    ),
    Fault(
        "a list of dictionaries is copied, entry by entry, only to be moved",
        {
            "data": "train_set = [(torch.ones(8), {'y': torch.tensor(i % 3), 'name': 'a'}) for i in range(48)]\n"
            "train_loader = DataLoader(train_set, 8, shuffle=True, collate_fn=lambda rows: tuple(zip(*rows)))",
            "loop": "for images, targets in train_loader:  # one epoch",
            "batch": "images = list(image.to(device) for image in images)\n"
            "targets = [{k: v.to(device) if torch.is_tensor(v) else v for k, v in t.items()} for t in targets]",
            "loss": "out = model(torch.stack(images))\nloss = F.cross_entropy(out, torch.stack([t['y'] for t in targets]))",
        },
        holds=("one epoch\n        optimizer.zero_grad()\n        out = model(torch.stack(images))",),
    ),
    Fault(
        "a twin of the model made before prepare places the model",
        {
            "imports": "import copy",
            "model": "model = nn.Linear(8, 3).to(device)\ntwin = copy.deepcopy(model)",
        },
        holds=(".to(",),
    ),
    Fault(
        "a loader made anew in a loop, prepared after all training",
        {
            "data": "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))",
            "epoch": "train_loader = DataLoader(train_set, batch_size=8)",
        },
        holds=(
            "DataLoader(train_set, batch_size=8)\n    train_loader = accelerator.prepare(train_loader)",
            "model, optimizer = accelerator.prepare(model, optimizer)\n\nfor epoch",
        ),
    ),
    Fault(
        "a sum set as the reduction later",
        {
            "setup": 'criterion = nn.MSELoss()\ncriterion.reduction = "sum"',
            "loss": "loss = criterion(model(x), y)",
        },
        lacks=("loss_reduction",),
    ),
    Fault(
        "a file that a writer of the script's own opens is read back",
        {
            "imports": "import os",
            "definitions": "class Writer:\n    def __init__(self, folder):\n"
            '        self.file = open(os.path.join(folder, "events.txt"), "w")\n\n'
            "    def add(self, text):\n        self.file.write(text)\n\n    def close(self):\n        self.file.close()",
            "setup": 'writer = Writer("runs")',
            "after_step": "writer.add(str(loss.item()))",
            "end": 'writer.close()\nprint(len(open("runs/events.txt").read()))',
        },
        holds=('accelerator.wait_for_everyone()\naccelerator.print(len(open("runs/events.txt").read()))',),
    ),
    Fault(
        "a file of another name needs no wait",
        {
            "imports": "import os",
            "setup": 'log = open("events.txt", "w")',
            "after_step": "log.write(str(loss.item()))",
            "end": 'print(len(open("readme.txt").read()))',
        },
        lacks=("wait_for_everyone",),
    ),
    Fault(
        "a function that prints is called before the Accelerator was made",
        {"definitions": 'def banner(text):\n    print(f"== {text}")', "options": 'banner("start")'},
        holds=('    print(f"== {text}")',),
        says="CT401",
    ),
    Fault(
        "a function that prints nothing is called before",
        {"definitions": "def double(number):\n    return 2 * number", "options": "width = double(4)"},
        holds=("width = double(4)\naccelerator = Accelerator()",),
    ),
    Fault(
        "a device that is chosen when everything is made",
        {
            "device": "",
            "model": "model = nn.Linear(8, 3)",
            "setup": 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nmodel.to(device)',
        },
        holds=("accelerator = Accelerator()\nmodel = nn.Linear(8, 3)",),
        lacks=("device = ",),
    ),
    Fault(
        "names that star imports of torch bring in",
        {
            "imports": "from torch.nn import *\nfrom torch.optim import *\nfrom torch.utils.data import *",
            "data": "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
            "train_loader = DataLoader(train_set, batch_size=8)",
            "model": "model = Linear(8, 3)\nmodel = model.cuda() if torch.cuda.is_available() else model",
            "optimizer": "optimizer = AdamW(model.parameters(), lr=0.1)\ncriterion = CrossEntropyLoss()",
            "loss": "loss = criterion(model(x), y)",
            "after_step": "print(loss.item())",
        },
        holds=(
            "model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)",
            'accelerator.print(accelerator.reduce(loss, reduction="mean").item())',
        ),
        lacks=("model = model",),
    ),
    Fault(
        "a name of the script's own beside a star import",
        {
            "imports": "from torch.nn import *",
            "definitions": "def Linear(width):\n    return width * 2",
            "after_step": "print(Linear(4))",
        },
        holds=("accelerator.print(Linear(4))",),
    ),
    Fault(
        "lengths that must stay on the CPU for packing",
        {
            "imports": "from torch.nn.utils.rnn import pack_padded_sequence",
            "data": "train_set = TensorDataset(torch.ones(48, 4, 8), torch.ones(48, dtype=torch.long))\n"
            "train_loader = DataLoader(train_set, batch_size=8)",
            "model": "model = nn.GRU(8, 3, batch_first=True).to(device)",
            "loop": "for x, n in train_loader:",
            "batch": "x = x.to(device)",
            "loss": "out, last = model(pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False))\n"
            "loss = last.pow(2).mean()",
        },
        holds=("pack_padded_sequence(x, n.cpu(), batch_first=True, enforce_sorted=False)",),
    ),
    Fault(
        "lengths that are on the CPU already, or in Python",
        {
            "imports": "from torch.nn.utils.rnn import pack_padded_sequence",
            "data": "train_set = TensorDataset(torch.ones(48, 4, 8), torch.ones(48, dtype=torch.long))\n"
            "train_loader = DataLoader(train_set, batch_size=8)",
            "model": "model = nn.GRU(8, 3, batch_first=True).to(device)",
            "loop": "for x, n in train_loader:",
            "batch": "x = x.to(device)",
            "loss": "out, last = model(pack_padded_sequence(x, n.cpu(), batch_first=True, enforce_sorted=False))\n"
            "loss = last.pow(2).mean()",
        },
        holds=("pack_padded_sequence(x, n.cpu(), batch_first=True, enforce_sorted=False)",),
        lacks=("n.cpu().cpu()",),
    ),
    Fault(
        "--device cpu where the option's default is chosen in the script",
        {
            "imports": "import argparse",
            "options": "parser = argparse.ArgumentParser()\nparser.add_argument('--device')\n"
            "args = parser.parse_args()",
            "device": 'if args.device is None:\n    args.device = "cuda" if torch.cuda.is_available() else "cpu"',
            "model": "model = nn.Linear(8, 3).to(args.device)",
            "batch": "x, y = x.to(args.device), y.to(args.device)",
        },
        holds=('accelerator = Accelerator(cpu=args.device == "cpu")',),
        lacks=("if args.device is None",),
    ),
]

FUNCTIONS = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def fit(model, loader, epochs, device):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long)), batch_size=8)
    model = nn.Linear(8, 3).to(device)
    fit(model, loader, 2, device)


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault) -> None:
    fault.check()


def test_a_function_that_is_given_the_model_prepares_it() -> None:
    result = migrate(FUNCTIONS)
    check_invariants(FUNCTIONS, result)
    assert "    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)" in result.after
    assert "def fit(model, loader, epochs, accelerator):" in result.after
    assert "    accelerator = Accelerator()\n    loader" in result.after  # before the model draws its weights


BARS = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm


def bars(loader, **options):
    return tqdm(loader, **options)


def main():
    loader = DataLoader(TensorDataset(torch.ones(64, 8), torch.zeros(64, dtype=torch.long)), 8)
    net = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for epoch in bars(range(2), desc="epochs"):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimizer.step()


main()
"""


def test_a_bar_whose_options_are_not_known_asks_for_no_accelerator() -> None:
    result = migrate(BARS)
    check_invariants(BARS, result)
    assert "def bars(loader, **options):\n    return tqdm(loader, **options)" in result.after
