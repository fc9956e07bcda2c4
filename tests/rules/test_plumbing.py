"""CT106: who hands the accelerator on, and which device variables are left. Everything stands in functions here."""

from __future__ import annotations

from .as_one import check_two_are_one
from .support import SLOTS, Case, Slots, each, leaves, migrate, refuses, script

RULE = "CT106"
STEP = """\
def step({}):
    {}optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    {}
    optimizer.step()
    return loss
"""
MOVED = "x, y = x.to(device), y.to(device)\n    "
EMPTY = {"loss": "", "backward": "", "step": ""}


def stepping(name: str, before: tuple[str, str], after: tuple[str, str]) -> Case:
    """A training step in a function: its parameters and its call, before and after."""
    return Case(
        RULE,
        name,
        {**EMPTY, "definitions": STEP.format(before[0], MOVED, "loss.backward()"), "batch": before[1]},
        {**EMPTY, "definitions": STEP.format(after[0], "", "accelerator.backward(loss)"), "batch": after[1]},
        at="def step",
        main=True,
    )


def handed(name: str, before: Slots, after: Slots, at: str = "") -> Case:
    return Case(RULE, name, before, after, at=at or before["definitions"].split("\n")[0], main=True)


def stays(name: str, before: Slots, after: Slots | None = None) -> Case:
    return leaves(RULE, name, before, after, main=True)


POSITIVE = [
    stepping(
        "in the place of the device",
        ("model, device, optimizer, x, y", "loss = step(model, device, optimizer, x, y)"),
        ("model, accelerator, optimizer, x, y", "loss = step(model, accelerator, optimizer, x, y)"),
    ),
    stepping(
        "in the place of the device, given by keyword",
        (
            "model, device, optimizer, x, y",
            "loss = step(model, optimizer=optimizer, x=x, y=y, device=device)",
        ),
        (
            "model, accelerator, optimizer, x, y",
            "loss = step(model, optimizer=optimizer, x=x, y=y, accelerator=accelerator)",
        ),
    ),
    stepping(
        "in the place of a keyword-only device",
        ("model, optimizer, x, y, *, device", "loss = step(model, optimizer, x, y, device=device)"),
        (
            "model, optimizer, x, y, *, accelerator",
            "loss = step(model, optimizer, x, y, accelerator=accelerator)",
        ),
    ),
    stepping(
        "in the place of the device, over several lines",
        (
            "\n    model,\n    device,  # where\n    optimizer,\n    x,\n    y,\n",
            "loss = step(\n    model, device, optimizer,\n    x, y)",
        ),
        (
            "\n    model,\n    accelerator,  # where\n    optimizer,\n    x,\n    y,\n",
            "loss = step(\n    model, accelerator, optimizer,\n    x, y)",
        ),
    ),
    stepping(
        "in the place of an annotated device",
        (
            "model: nn.Module, device: torch.device, optimizer, x, y",
            "loss = step(model, device, optimizer, x, y)",
        ),
        (
            "model: nn.Module, accelerator: Accelerator, optimizer, x, y",
            "loss = step(model, accelerator, optimizer, x, y)",
        ),
    ),
    stepping(
        "in the place of a device with a default",
        ('model, optimizer, x, y, device="cuda"', "loss = step(model, optimizer, x, y)"),
        ("model, optimizer, x, y, accelerator", "loss = step(model, optimizer, x, y, accelerator)"),
    ),
    handed(
        "in the place of a device that annotates a variable",
        {
            **EMPTY,
            "definitions": STEP.format(
                "model, device, optimizer, x, y", MOVED + "rate: device = 1.0\n    ", "loss.backward()"
            ),
            "batch": "loss = step(model, device, optimizer, x, y)",
        },
        {
            "definitions": STEP.format(
                "model, accelerator, optimizer, x, y",
                "rate: accelerator.device = 1.0\n    ",
                "accelerator.backward(loss)",
            ),
            "batch": "loss = step(model, accelerator, optimizer, x, y)",
        },
    ),
    handed(
        "where there is no device",
        {
            **EMPTY,
            "definitions": STEP.format("model, optimizer, x, y", "", "loss.backward()"),
            "batch": "x, y = x.to(device), y.to(device)\nloss = step(model, optimizer, x, y)",
        },
        {
            "definitions": STEP.format(
                "accelerator, model, optimizer, x, y", "", "accelerator.backward(loss)"
            ),
            "batch": "loss = step(accelerator, model, optimizer, x, y)",
        },
    ),
    handed(
        "to speak",
        {"definitions": "def report(epoch):\n    print(epoch)\n", "after_epoch": "report(epoch)"},
        {
            "definitions": "def report(accelerator, epoch):\n    accelerator.print(epoch)\n",
            "after_epoch": "report(accelerator, epoch)",
        },
    ),
    handed(
        "to speak, from two places",
        {
            "definitions": "def report(n):\n    print(n)\n",
            "after_epoch": "report(1)",
            "end": "report(2)  # at last",
        },
        {
            "definitions": "def report(accelerator, n):\n    accelerator.print(n)\n",
            "after_epoch": "report(accelerator, 1)",
            "end": "report(accelerator, 2)  # at last",
        },
    ),
    handed(
        "through a function in between",
        {
            "definitions": "def say(text):\n    print(text)\n\n\ndef report(epoch):\n    say(epoch)\n",
            "after_epoch": "report(epoch)",
        },
        {
            "definitions": (
                "def say(accelerator, text):\n    accelerator.print(text)\n\n\n"
                "def report(accelerator, epoch):\n    say(accelerator, epoch)\n"
            ),
            "after_epoch": "report(accelerator, epoch)",
        },
    ),
    handed(
        "to a function that calls itself",
        {
            "definitions": "def count(n):\n    if n:\n        print(n)\n        count(n - 1)\n",
            "after_epoch": "count(3)",
        },
        {
            "definitions": (
                "def count(accelerator, n):\n    if n:\n        accelerator.print(n)\n        count(accelerator, n - 1)\n"
            ),
            "after_epoch": "count(accelerator, 3)",
        },
    ),
    handed(
        "before any number of arguments",
        {"definitions": "def report(*words):\n    print(*words)\n", "after_epoch": "report(epoch, 1)"},
        {
            "definitions": "def report(accelerator, *words):\n    accelerator.print(*words)\n",
            "after_epoch": "report(accelerator, epoch, 1)",
        },
    ),
    handed(
        "to an object's constructor",
        {
            "definitions": (
                "class Log:\n"
                "    def __init__(self, name):\n"
                '        """Remembers who speaks."""\n'
                "        self.name = name\n"
                "\n"
                "    def say(self, text):\n"
                "        print(self.name, text)\n"
            ),
            "setup": 'log = Log("a")',
            "after_epoch": 'log.say("x")',
        },
        {
            "definitions": (
                "class Log:\n"
                "    def __init__(self, accelerator, name):\n"
                '        """Remembers who speaks."""\n'
                "        self.accelerator = accelerator\n"
                "        self.name = name\n"
                "\n"
                "    def say(self, text):\n"
                "        self.accelerator.print(self.name, text)\n"
            ),
            "setup": 'log = Log(accelerator, "a")',
        },
        at="def __init__(self, name)",
    ),
    handed(
        "a device parameter that nothing uses any more goes",
        {
            "definitions": "def build(device):\n    return nn.Linear(8, 3).to(device)\n",
            "model": "model = build(device)",
        },
        {"definitions": "def build():\n    return nn.Linear(8, 3)\n", "model": "model = build()"},
    ),
    handed(
        "a device that is still used is read from it",
        {
            "definitions": "def noise(n, device):\n    print(n)\n    return torch.zeros(n, device=device)\n",
            "after_epoch": "noise(3, device)",
        },
        {
            "definitions": (
                "def noise(n, accelerator):\n    accelerator.print(n)\n"
                "    return torch.zeros(n, device=accelerator.device)\n"
            ),
            "after_epoch": "noise(3, accelerator)",
        },
    ),
]

NEGATIVE = [
    stays(
        "nothing to hand on",
        {"definitions": "def double(n):\n    return 2 * n\n", "after_epoch": "double(3)"},
    ),
    stays(
        "a device that is all that is needed",
        {
            "definitions": "def noise(n, device):\n    return torch.zeros(n, device=device)\n",
            "after_epoch": "noise(3, device)",
        },
        {"device": "accelerator = Accelerator()\ndevice = accelerator.device  # the fastest there is"},
    ),
    stays(
        "a function that is handed on as a value",
        {
            "definitions": "def call(f):\n    f(1)\n\n\ndef report(epoch):\n    print(epoch)\n",
            "after_epoch": "call(report)",
        },
    ),
    stays(
        "a function with some arguments already bound",
        {
            "imports": "from functools import partial",
            "definitions": "def report(name, n):\n    print(name, n)\n",
            "after_epoch": 'say = partial(report, "a")\nsay(1)',
        },
    ),
    stays("a function that nobody calls", {"definitions": "def report(n):\n    print(n)\n"}),
    stays(
        "a function that only computes",
        {"definitions": "def half(n):\n    return n // 2\n", "after_epoch": "steps = half(epoch)"},
    ),
    stays(
        "a method that only computes",
        {
            "definitions": "class Plan:\n    def __init__(self, n):\n        self.n = n\n\n"
            "    def left(self, epoch):\n        return self.n - epoch\n",
            "setup": "plan = Plan(2)",
            "after_epoch": "left = plan.left(epoch)",
        },
    ),
    stays(
        "a function called before there is an accelerator",
        {"definitions": "def report(n):\n    print(n)\n", "options": "report(1)", "after_epoch": "report(2)"},
    ),
    stays(
        "a class without a constructor",
        {
            "definitions": "class Log:\n    def say(self, text):\n        print(text)\n",
            "setup": "log = Log()",
            "after_epoch": 'log.say("x")',
        },
    ),
    stays(
        "a function that a data set calls",
        {
            "definitions": (
                "def report(n):\n    print(n)\n\n\n"
                "class Points(torch.utils.data.Dataset):\n"
                "    def __len__(self):\n"
                "        return 48\n"
                "\n"
                "    def __getitem__(self, index):\n"
                "        report(index)\n"
                "        return torch.ones(8), 0\n"
            ),
            "data": "train_loader = DataLoader(Points(), batch_size=8)",
        },
    ),
    stays(
        "a function that a module's forward calls",
        {
            "definitions": (
                "def report(n):\n    print(n)\n\n\n"
                "class Net(nn.Module):\n"
                "    def __init__(self):\n"
                "        super().__init__()\n"
                "        self.layer = nn.Linear(8, 3)\n"
                "\n"
                "    def forward(self, x):\n"
                "        report(len(x))\n"
                "        return self.layer(x)\n"
            ),
            "model": "model = Net().to(device)",
        },
        {"model": "model = Net()"},
    ),
    stays(
        "a closure sees it already",
        {"after_epoch": "def say(text):\n    print(text)\n\nsay(epoch)"},
        {"after_epoch": "def say(text):\n    accelerator.print(text)\n\nsay(epoch)"},
    ),
    stays(
        "a lambda sees it already",
        {"after_epoch": "say = lambda text: print(text)\nsay(epoch)"},
        {"after_epoch": "say = lambda text: accelerator.print(text)\nsay(epoch)"},
    ),
    stays(
        "a nested function's own device",
        {
            "after_epoch": 'def host():\n    where = torch.device("cpu")\n    return torch.zeros(3, device=where)\n\nhost()'
        },
    ),
    stays(
        "a recursion without words",
        {"definitions": "def count(n):\n    return count(n - 1) if n else 0\n", "end": "count(3)"},
    ),
    stays(
        "a parameter called device that is none",
        {"definitions": "def name(device):\n    return device.upper()\n", "end": 'name("printer")'},
    ),
    refuses(
        RULE,
        "training in a class whose constructor is that of another library",
        {
            **EMPTY,
            "imports": "import threading",
            "definitions": (
                "class Step(threading.local):\n"
                "    def run(self, model, optimizer, x, y):\n"
                "        optimizer.zero_grad()\n"
                "        loss = F.cross_entropy(model(x), y)\n"
                "        loss.backward()\n"
                "        optimizer.step()\n"
            ),
            "setup": "step = Step()",
            "batch": "step.run(model, optimizer, x, y)",
        },
        at="class Step",
        main=True,
    ),
]


UNMADE = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Step:
    'One of them.'

    # a step
    def run(self, model, optimizer, x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


def main():
    loader = DataLoader(TensorDataset(torch.randn(48, 8), torch.randint(0, 3, (48,))), batch_size=8)
    model = nn.Linear(8, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = Step()
    for x, y in loader:
        step.run(model, optimizer, x, y)
    return [p.tolist() for p in model.parameters()]


torch.manual_seed(0)
weights = main()
"""


def test_a_class_without_a_constructor_gets_one() -> None:
    result = check_two_are_one(UNMADE, printed=False)
    start = (
        "    'One of them.'\n\n    def __init__(self, accelerator):\n        self.accelerator = accelerator\n"
    )
    assert f"{start}\n    # a step\n    def run(" in result.after
    assert "step = Step(accelerator)\n" in result.after


@each(POSITIVE, NEGATIVE)
def test_plumbing(case: Case) -> None:
    case.check()


EITHER = """\
class Loud:
    def __init__(self, times):
        self.times = times

    def say(self):
        for _ in range(self.times):
            print("epoch")


class Quiet:
    def __init__(self, times):
        self.times = times

    def say(self):
        pass
"""


def either(say: str) -> str:
    return script(
        {
            **SLOTS,
            "definitions": EITHER.replace('print("epoch")', say),
            "setup": "kind = Loud if input() else Quiet\nvoice = kind(2)",
            "after_epoch": "voice.say()",
        },
        main=True,
    )


def test_of_two_classes_that_one_call_may_make_none_gets_the_accelerator_for_a_print() -> None:
    result = migrate(either('print("epoch")'))
    assert "voice = kind(2)" in result.after
    assert result.changed
    assert [f for f in result.findings if f.rule == "CT401"]


def test_a_call_that_may_reach_a_function_without_the_accelerator_is_refused() -> None:
    result = migrate(either("torch.save(self, 'voice.pt')"))
    assert not result.changed
    assert "this may call `Loud`" in next(f.reason for f in result.findings if f.rule == "CT106")
