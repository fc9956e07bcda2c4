"""Faults that a second adversarial trial found: where the device comes from, and which number is whose."""

from __future__ import annotations

import pytest

from tests.rules.faults import Fault
from tests.rules.support import check_invariants, migrate

CONFIG = "class Config:\n    rate = 0.1\n    {}\n\n"
OF_CONFIG = {
    "device": "",
    "model": "model = nn.Linear(8, 3).to(Config.device)",
    "batch": "x, y = x.to(Config.device), y.to(Config.device)",
}
CHOICE = 'device = "cuda" if torch.cuda.is_available() else "cpu"'

OPTIONS = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--no-cuda", action="store_true")
parser.add_argument("--device", default="cuda")
args = parser.parse_args()
"""
GUARDED = {
    "options": OPTIONS + "args.cuda = not args.no_cuda and torch.cuda.is_available()",
    "device": "",
    "model": "model = nn.Linear(8, 3)\nif args.cuda:\n    model.cuda()",
    "batch": "if args.cuda:\n    x, y = x.cuda(), y.cuda()",
}
SAMPLE = "z = torch.ones(1, 8)\n{}\nwith torch.no_grad():\n    print(model(z).sum().item())"

FAULTS = [
    Fault(
        "the CPU is still chosen by a flag that only stood around moves",
        GUARDED,
        holds=("accelerator = Accelerator(cpu=args.no_cuda)\nmodel = nn.Linear(8, 3)\n",),
        lacks=(".cuda()",),
    ),
    Fault(
        "the CPU is still chosen by a flag that a trainer keeps",
        {
            "options": GUARDED["options"],
            "definitions": "class Trainer:\n    def __init__(self, args, loader):\n        self.args = args\n"
            "        self.loader = loader\n        self.model = nn.Linear(8, 3)\n"
            "        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)\n"
            "        if self.args.cuda:\n            self.model = self.model.cuda()\n\n"
            "    def train(self):\n        for x, y in self.loader:\n            if self.args.cuda:\n"
            "                x, y = x.cuda(), y.cuda()\n            loss = F.cross_entropy(self.model(x), y)\n"
            "            self.optimizer.zero_grad()\n            loss.backward()\n            self.optimizer.step()\n",
            "device": "",
            "model": "trainer = Trainer(args, train_loader)",
            "optimizer": "",
            "epoch": "trainer.train()",
            "loop": "if True:",
            "batch": "pass",
            **dict.fromkeys(("loss", "backward", "step"), ""),
        },
        holds=("self.accelerator = Accelerator(cpu=self.args.no_cuda)",),
        lacks=("args.cuda:",),
    ),
    Fault(
        "a test of CUDA around a move alone goes",
        {**GUARDED, "end": SAMPLE.format("if args.cuda:\n    z = z.cuda()")},
        holds=("\nz = z.to(accelerator.device)\n",),
        lacks=("if args.cuda",),
    ),
    Fault(
        "a test of CUDA around a move alone goes, written in both branches",
        {
            **GUARDED,
            "end": SAMPLE.format(
                "if args.cuda:\n    z = z.double().cuda().float()\nelse:\n    z = z.double().float()"
            ),
        },
        holds=("\nz = z.double().to(accelerator.device).float()\n",),
        lacks=("if args.cuda", "else"),
    ),
    Fault(
        "a test of CUDA around a move alone goes, written as an expression",
        {**GUARDED, "end": SAMPLE.format("z = z.cuda() if torch.cuda.is_available() else z")},
        holds=("\nz = z.to(accelerator.device)\n",),
    ),
    Fault(
        "a test of CUDA around more than moves stays",
        {**GUARDED, "end": SAMPLE.format("if args.cuda:\n    z = z.cuda()\n    z = z * 2")},
        holds=("if args.cuda:\n    z = z.to(accelerator.device)\n    z = z * 2\n",),
    ),
    Fault(
        "the CPU in a call, in the first place of a choice",
        {
            "options": OPTIONS,
            "device": 'device = torch.device("cpu") if args.no_cuda else torch.device("cuda")',
        },
        holds=("Accelerator(cpu=args.no_cuda)",),
    ),
    Fault(
        "the name of a device as an option, where there is a GPU",
        {
            "options": OPTIONS,
            "device": 'device = torch.device(args.device if torch.cuda.is_available() else "cpu")',
        },
        holds=('Accelerator(cpu=args.device == "cpu")',),
    ),
    Fault(
        "a switch that is not understood is said to do nothing",
        {
            "options": OPTIONS,
            "device": 'device = torch.device("cuda" * (not args.no_cuda) or "cpu")',
        },
        holds=("Accelerator()",),
        says="CT105",
    ),
    Fault(
        "a switch that chooses from a list is said to do nothing",
        {"options": OPTIONS, "device": 'device = ["cuda", "cpu"][args.no_cuda]'},
        holds=("Accelerator()",),
        says="CT105",
    ),
    Fault(
        "a switch in the body of a class is not read where it is not known",
        {
            "definitions": "class Config:\n    gpu = True\n"
            '    device = "cuda" if gpu and torch.cuda.is_available() else "cpu"\n\n',
            "device": "",
            "model": "model = nn.Linear(8, 3).to(Config.device)",
            "batch": "x, y = x.to(Config.device), y.to(Config.device)",
        },
        holds=("Accelerator()",),
        says="CT105",
    ),
    Fault(
        "a device in the body of a class goes with its last use",
        {"definitions": CONFIG.format(CHOICE), **OF_CONFIG},
        holds=("class Config:\n    rate = 0.1\n\n", "model = nn.Linear(8, 3)\n"),
        lacks=("Config.device", "is_available"),
    ),
    Fault(
        "a device in the body of a class whose other uses become the accelerator's",
        {
            "definitions": CONFIG.format(CHOICE),
            **OF_CONFIG,
            "end": "with torch.no_grad():\n    print(model(torch.ones(1, 8).to(Config.device)).sum().item())",
        },
        holds=("torch.ones(1, 8).to(accelerator.device)",),
        lacks=("Config.device", "is_available"),
    ),
    Fault(
        "a device in the body of a class that an object of the class is asked for",
        {
            "definitions": CONFIG.format(CHOICE) + "config = Config()\n",
            **{slot: text.replace("Config", "config") for slot, text in OF_CONFIG.items()},
        },
        lacks=("config.device", "is_available"),
    ),
    Fault(
        "a device in the body of a class stays where something unknown may be the class",
        {
            "definitions": CONFIG.format(CHOICE) + "def place(thing):\n    return thing.device\n",
            **OF_CONFIG,
            "end": "print(place(Config), place(torch.ones(1)))",
        },
        holds=("device = ", "return thing.device"),
    ),
    Fault(
        "a sum divided by a number that is read is a sum over the global batch",
        {
            "loss": 'out = model(x)\nn = (y > 0).sum().item()\nloss = F.cross_entropy(out, y, reduction="sum") / n',
            "after_step": "print(n)",
        },
        holds=(
            'Accelerator(loss_reduction="sum")',
            "n = accelerator.gather_for_metrics(y > 0).sum().item()",
        ),
    ),
    Fault(
        "a mean weighted by a number that is read stays a mean",
        {"loss": "out = model(x)\nrate = x.abs().max().item()\nloss = rate * F.cross_entropy(out, y)"},
        holds=(
            "Accelerator()",
            "rate = accelerator.gather_for_metrics(x.abs()).max().item()",
        ),
    ),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_fault(fault: Fault) -> None:
    fault.check()


CHOSEN_BEFORE = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(args):
    {device}
    points = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
    loader = DataLoader(points, batch_size=8)
    model = nn.Linear(8, 3).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        shift = torch.ones(8).to({used})
        loss = nn.functional.cross_entropy(model(x.to(args.device) + shift), y.to(args.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--cuda", action="store_true")
    args = parser.parse_args()
    {chosen}
    train(args)
"""
SWITCHED = """\
args.cuda = args.cuda and torch.cuda.is_available()
    args.device = torch.device("cuda:0" if args.cuda else "cpu")"""


@pytest.mark.parametrize(
    ("chosen", "made"),
    [
        ('args.device = "cuda:0" if torch.cuda.is_available() else "cpu"', "Accelerator()"),
        ('args.device = torch.device("cuda")', "Accelerator()"),
        (SWITCHED, "Accelerator(cpu=not args.cuda)"),
    ],
    ids=["a string", "a device", "a flag"],
)
@pytest.mark.parametrize(
    ("device", "used", "after"),
    [
        ("device = args.device", "device", ".to(device)"),
        ("rate = 0.1", "args.device", ".to(accelerator.device)"),
    ],
    ids=["copied", "as it is"],
)
def test_a_device_that_was_chosen_before_the_training_is_each_processs_own(
    chosen: str, made: str, device: str, used: str, after: str
) -> None:
    text = CHOSEN_BEFORE.format(chosen=chosen, device=device, used=used)
    result = migrate(text)
    check_invariants(text, result)
    assert f"accelerator = {made}" in result.after
    assert f"torch.ones(8){after}" in result.after
    assert ("device = accelerator.device" in result.after) == (used == "device")
    assert not result.findings
