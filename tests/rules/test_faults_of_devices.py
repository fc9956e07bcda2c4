"""Faults that a second adversarial trial found: where the device comes from, and which number is whose."""

from __future__ import annotations

import pytest

from tests.rules.faults import Fault

CONFIG = "class Config:\n    rate = 0.1\n    {}\n\n"
OF_CONFIG = {
    "device": "",
    "model": "model = nn.Linear(8, 3).to(Config.device)",
    "batch": "x, y = x.to(Config.device), y.to(Config.device)",
}
CHOICE = 'device = "cuda" if torch.cuda.is_available() else "cpu"'

FAULTS = [
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
