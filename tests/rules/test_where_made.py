"""CT201 where no joint prepare can stand: each object is prepared where it is made, and trains the same on two processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .as_one import check_two_are_one
from .support import SLOTS, Slots, check_invariants, migrate, script, unbroken

SET = "train_set = TensorDataset(torch.randn(48, 8), torch.randint(0, 3, (48,)))"
MADE = "DataLoader(train_set, batch_size=8, shuffle=True)"
DATA = f"{SET}\ntrain_loader = {MADE}"
CYCLE = "def cycle(loader):\n    while True:\n        yield from loader\n"
LOAD = f"def load(train_set):\n    return cycle({MADE})\n"
STEPS: Slots = {
    "loop": "for _ in range(4):",
    "batch": "x, y = next(batches)\nx, y = x.to(device), y.to(device)",
}
OPTIMIZER = SLOTS["optimizer"]
SCHEDULER = "scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, {})"
WEIGHTS = "weights = [p.tolist() for p in {}.parameters()]"
CASES: dict[str, tuple[Slots, list[str]]] = {
    "a stream under another name": (
        {
            **STEPS,
            "definitions": CYCLE,
            "data": f"{DATA}\nsame = train_loader",
            "setup": "batches = cycle(same)",
        },
        ["train_loader = accelerator.prepare(train_loader)\nsame = train_loader\n"],
    ),
    "a model that runs before its optimizer exists": (
        {"model": f"{SLOTS['model']}\nmodel(torch.ones(2, 8).to(device))"},
        [
            "model = accelerator.prepare(model)\nmodel(torch.ones",
            "optimizer, train_loader = accelerator.prepare(optimizer, train_loader)\n",
        ],
    ),
    "a model that runs on the CPU before it is moved": (
        {
            "model": "model = nn.Linear(8, 3)\nmodel(torch.ones(2, 8))\nmodel.to(device)",
            "optimizer": f"{OPTIMIZER}\nmodel(torch.ones(2, 8).to(device))",
        },
        ["model(torch.ones(2, 8))\nmodel = accelerator.prepare(model)\n"],
    ),
    "a loader that is iterated before the scheduler is made": (
        {
            "optimizer": f"{OPTIMIZER}\nfor a, b in train_loader:\n    break",
            "setup": "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)",
            "after_epoch": "scheduler.step()",
        },
        [
            "train_loader = accelerator.prepare(train_loader)\n",
            "model, optimizer, scheduler = accelerator.prepare(",
        ],
    ),
    "models of a loop that only the last of has a name": (
        {
            "model": "parameters = []\nfor _ in range(3):\n    model = nn.Linear(8, 3).to(device)\n"
            "    parameters += list(model.parameters())",
            "optimizer": "optimizer = torch.optim.SGD(parameters, lr=0.1)",
            "epoch": "",
        },
        ["    model = accelerator.prepare(model)\n    parameters +="],
    ),
    "an optimizer of which somebody asks whether it exists": (
        {
            "options": "by_hand = False",
            "optimizer": f"if not by_hand:\n    {OPTIMIZER}",
            "end": 'print("optimizer" in globals())',
        },
        ["    optimizer = accelerator.prepare(optimizer)\n", "model = accelerator.prepare(model)\n"],
    ),
    "an optimizer that a loop makes": (
        {"options": "names = ['sgd']", "optimizer": f"for name in names:\n    {OPTIMIZER}"},
        ["    optimizer = accelerator.prepare(optimizer)\n", "model = accelerator.prepare(model)\n"],
    ),
    "a loader under a condition": (
        {"options": "ready = True", "data": f"{SET}\nif ready:\n    train_loader = {MADE}"},
        [
            "    train_loader = accelerator.prepare(train_loader)\n",
            "model, optimizer = accelerator.prepare(model, opt",
        ],
    ),
    "a loader made where no accelerator can be handed to": (
        {
            **STEPS,
            "definitions": f"{CYCLE}\n\n{LOAD}\n\nmakers = [load]\n",
            "data": SET,
            "setup": "batches = load(train_set)",
        },
        ["return cycle(accelerator.prepare(DataLoader("],
    ),
    "a stream of which its maker makes two": (
        {
            **STEPS,
            "definitions": f"{CYCLE}\n\n{LOAD}",
            "data": SET,
            "setup": "batches = load(train_set)\nothers = load(train_set)",
        },
        ["return cycle(accelerator.prepare(DataLoader("],
    ),
    "a stream begun before its loader's length is read for a scheduler": (
        {
            "definitions": "def once(loader):\n    yield from loader\n",
            "loop": "for x, y in batches:",
            "data": f"{DATA}\nbatches = once(train_loader)",
            "optimizer": f"{OPTIMIZER}\n{SCHEDULER.format('len(train_loader)')}",
            "after_step": "scheduler.step()",
        },
        ["model, optimizer = accelerator.prepare(model, optimizer)\n"],
    ),
    "a length that a function reads of what it prepares": (
        {
            "definitions": f"def once(loader):\n    yield from loader\n\n\ndef load(train_set):\n    loader = {MADE}\n"
            "    return once(loader), len(loader)\n",
            "data": f"{SET}\nbatches, count = load(train_set)",
            "setup": SCHEDULER.format("count"),
            "loop": "for x, y in batches:",
            "after_step": "scheduler.step()",
        },
        [
            "loader = accelerator.prepare(DataLoader",
            "model, optimizer = accelerator.prepare(model, optimizer)\n",
        ],
    ),
    "a loader that is read beside its dictionary": (
        {
            "data": f'{SET}\ntrain_loader = {MADE}\nloaders = {{"train": train_loader}}',
            "loop": 'for x, y in loaders["train"]:',
            "end": "print(len(train_loader))",
        },
        ["train_loader = accelerator.prepare(DataLoader("],
    ),
}


LAYERWISE = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Layer(nn.Linear):
    def __init__(self, width, height):
        super().__init__(width, height)
        self.steps = torch.optim.SGD(self.parameters(), lr=0.1)

    def fit(self, x):
        loss = (self(x) - 1).pow(2).mean()
        self.steps.zero_grad()
        loss.backward()
        self.steps.step()
        return self(x).detach()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stack = []
        for _ in range(2):
            self.stack = self.stack + [Layer(8, 8).to(device)]

    def fit(self, x):
        for layer in self.stack:
            x = layer.fit(x)


if __name__ == "__main__":
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(TensorDataset(torch.randn(48, 8)), batch_size=8, shuffle=True)
    net = Net()
    for (x,) in loader:
        net.fit(x.to(device))
    weights = [p.tolist() for layer in net.stack for p in layer.parameters()]
"""


def test_layers_that_make_optimizers_of_their_own() -> None:
    """Each is prepared in its constructor, before its optimizer."""
    result = check_two_are_one(LAYERWISE, printed=False)
    assert (
        "        accelerator.prepare(self)\n        self.steps = accelerator.prepare(self.steps)\n"
        in result.after
    )
    assert "    loader = accelerator.prepare(loader)\n" in result.after


def test_accelerate_wraps_no_model_in_its_own_constructor() -> None:
    result = migrate_text(Path("train.py"), LAYERWISE, Options(runtime="accelerate"))
    assert result.refused


MANY = LAYERWISE.replace("        self.steps = torch.optim.SGD(self.parameters(), lr=0.1)\n", "").replace(
    "            self.stack = self.stack + [Layer(8, 8).to(device)]\n",
    "            layer = Layer(8, 8).to(device)\n"
    "            layer.steps = torch.optim.SGD(layer.parameters(), lr=0.1)\n"
    "            self.stack = self.stack + [layer]\n",
)


def test_layers_whose_optimizers_a_loop_makes() -> None:
    result = check_two_are_one(MANY, printed=False)
    assert "layer, layer.steps = accelerator.prepare(layer, layer.steps)\n" in result.after


def written(slots: Slots) -> str:
    """The script with data that tells one row from another, and the weights it leaves."""
    text = script({**SLOTS, "data": DATA, **slots})
    return (
        text.replace("\ndevice = ", "\ntorch.manual_seed(0)\ndevice = ", 1) + WEIGHTS.format("model") + "\n"
    )


@pytest.mark.parametrize("name", CASES)
def test_it_trains_the_same_on_two_processes(name: str) -> None:
    slots, lines = CASES[name]
    result = check_two_are_one(written(slots), printed=False)
    for line in lines:
        assert line in unbroken(result.after)


def test_a_function_far_away_shares_the_accelerators_state() -> None:
    """No signature of `load` can change, which a list holds: it asks for the accelerator that `main` has made."""
    slots, _ = CASES["a loader made where no accelerator can be handed to"]
    text = script({**SLOTS, **slots}, main=True)
    result = migrate(text)
    check_invariants(text, result)
    assert "return cycle(Accelerator().prepare(DataLoader(" in unbroken(result.after)


def test_a_function_that_calls_itself_for_a_stream() -> None:
    load = f"def load(n):\n    return load(n - 1) if n else cycle({MADE})\n".replace(
        "train_set", "TensorDataset(torch.ones(9, 8))"
    )
    text = script(
        {**SLOTS, **STEPS, "definitions": f"{CYCLE}\n\n{load}", "data": "batches = load(3)"}, main=True
    )
    result = migrate(text)
    check_invariants(text, result)
    assert "load(accelerator, n - 1) if n else cycle(accelerator.prepare(DataLoader(" in unbroken(
        result.after
    )


def test_two_loaders_of_which_one_must_be_prepared_before_a_schedule_counts_it() -> None:
    """The length of one would be that of a share, of the other that of all batches."""
    slots = {
        "definitions": CYCLE,
        "data": f"{DATA}\nother_loader = {MADE}\nbatches = cycle(train_loader)",
        "optimizer": f"{OPTIMIZER}\n{SCHEDULER.format('len(train_loader) + len(other_loader)')}",
        "loop": "for (x, y), (a, b) in zip(batches, other_loader):",
        "loss": "loss = F.cross_entropy(model(x), y) + F.cross_entropy(model(a.to(device)), b.to(device))",
        "after_step": "scheduler.step()",
    }
    result = migrate(script({**SLOTS, **slots}))
    assert [f.rule for f in result.findings if f.severity.value == "refused"] == ["CT205"], result.findings
