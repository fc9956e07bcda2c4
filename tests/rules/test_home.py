"""CT101 and CT102: the import and the one Accelerator."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import Options

from .support import SLOTS, Case, converts, each, leaves, refuses, script

IMPORT, CONSTRUCT = "CT101", "CT102"

OPTIONS = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument({option})
args = parser.parse_args()
"""
NO_CUDA = OPTIONS.format(option='"--no-cuda", action="store_true"')
CPU = OPTIONS.format(option='"--cpu", action="store_true"')
CUDA = OPTIONS.format(option='"--cuda", action="store_true"')
DEVICE = OPTIONS.format(option='"--device", default="cuda"')
EPOCH_SCHEDULER = "scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)"


def switch(
    name: str, options: str, device: str, accelerator: str, left: str | None = None, **more: str
) -> Case:
    """A way to choose the CPU, and the `Accelerator` that obeys it."""
    after = {"device": accelerator} if left is None else {"options": left, "device": accelerator}
    return converts(
        CONSTRUCT, name, {"options": options, "device": device}, after, at=device.split("\n")[-1], **more
    )


POSITIVE = [
    converts(IMPORT, "after the imports that sort before it", {}, {}, at="Points of three classes"),
    converts(
        CONSTRUCT,
        "in the place of the device",
        {"device": 'device = torch.device("cuda")'},
        {"device": "accelerator = Accelerator()"},
    ),
    converts(
        CONSTRUCT,
        "no device at all",
        {"device": "", "model": "model = nn.Linear(8, 3)", "batch": ""},
        {"device": "", "model": "accelerator = Accelerator()\nmodel = nn.Linear(8, 3)"},
        at="model = nn.Linear",
    ),
    switch(
        "a flag against the GPU",
        NO_CUDA,
        'device = torch.device("cuda" if torch.cuda.is_available() and not args.no_cuda else "cpu")',
        "accelerator = Accelerator(cpu=args.no_cuda)",
    ),
    switch(
        "a flag against the GPU, the choice turned round",
        NO_CUDA,
        'device = torch.device("cpu" if args.no_cuda or not torch.cuda.is_available() else "cuda")',
        "accelerator = Accelerator(cpu=args.no_cuda)",
    ),
    switch(
        "a flag against the GPU, and nothing asked about one",
        NO_CUDA,
        'device = "cpu" if args.no_cuda else "cuda"',
        "accelerator = Accelerator(cpu=args.no_cuda)",
    ),
    switch(
        "a flag for the CPU",
        CPU,
        'device = torch.device("cpu" if args.cpu else "cuda")',
        "accelerator = Accelerator(cpu=args.cpu)",
    ),
    switch(
        "a flag for the GPU",
        CUDA,
        'device = torch.device("cuda" if args.cuda and torch.cuda.is_available() else "cpu")',
        "accelerator = Accelerator(cpu=not args.cuda)",
    ),
    switch(
        "a flag for the GPU by way of a variable that goes",
        CUDA + "use_cuda = args.cuda and torch.cuda.is_available()",
        'device = torch.device("cuda" if use_cuda else "cpu")',
        "accelerator = Accelerator(cpu=not args.cuda)",
        left=CUDA.rstrip("\n"),
    ),
    Case(
        CONSTRUCT,
        "the name of the device as an option",
        {"options": DEVICE, "device": "device = torch.device(args.device)"},
        {"device": 'accelerator = Accelerator(cpu=args.device == "cpu")'},
        at="torch.device(args.device)",
        findings=(("CT105", "torch.device(args.device)"),),
    ),
    converts(
        CONSTRUCT,
        "before the first random draw",
        {
            "device": "",
            "data": (
                "points = torch.randn(48, 8)\n"
                "train_loader = DataLoader(TensorDataset(points, torch.zeros(48, dtype=torch.long)), batch_size=8)"
            ),
            "model": "model = nn.Linear(8, 3)",
            "batch": "",
        },
        {
            "device": "",
            "data": (
                "accelerator = Accelerator()\n"
                "points = torch.randn(48, 8)\n"
                "train_loader = DataLoader(TensorDataset(points, torch.zeros(48, dtype=torch.long)), batch_size=8)"
            ),
        },
        at="points = torch.randn",
    ),
    converts(
        CONSTRUCT,
        "a scheduler stepped per epoch asks for its option",
        {"setup": EPOCH_SCHEDULER, "after_epoch": "scheduler.step()"},
        {
            "device": "accelerator = Accelerator(step_scheduler_with_optimizer=False)  # the fastest there is",
            "prepare": "",
            "setup": (
                EPOCH_SCHEDULER + "\nmodel, optimizer, train_loader, scheduler = accelerator.prepare(\n"
                "    model, optimizer, train_loader, scheduler\n)"
            ),
        },
        at="device = torch.device",
    ),
    converts(
        CONSTRUCT,
        "a sum asks for its option",
        {"loss": 'out = model(x)\nloss = F.cross_entropy(out, y, reduction="sum")'},
        {"device": 'accelerator = Accelerator(loss_reduction="sum")  # the fastest there is'},
        at="device = torch.device",
    ),
    converts(
        CONSTRUCT,
        "seeding stays before it",
        {"options": "torch.manual_seed(1)"},
        {},
        at="device = torch.device",
    ),
]

NEGATIVE = [
    leaves(
        CONSTRUCT,
        "settings that exec makes do not reach it",
        {"device": 'device = "cuda"\nfor setting in ["lr = 0.1"]:\n    exec(setting)'},
        {"device": 'accelerator = Accelerator()\nfor setting in ["lr = 0.1"]:\n    exec(setting)'},
        findings=[("CT105", 'device = "cuda"')],
    ),
    leaves(
        CONSTRUCT,
        "a random draw behind the model does not hold it back",
        {
            "imports": "import random",
            "device": "",
            "model": "model = nn.Linear(8, 3)",
            "batch": "",
            "setup": "row = random.randint(0, 3)",
            "after_epoch": "print(row)",
        },
        {
            "device": "",
            "model": "accelerator = Accelerator()\nmodel = nn.Linear(8, 3)",
            "after_epoch": "accelerator.print(row)",
        },
    ),
    leaves(CONSTRUCT, "a device for printing", {"options": 'printer = "lp0"'}),
    leaves(
        CONSTRUCT, "how many cores there are", {"imports": "import os", "options": "cores = os.cpu_count()"}
    ),
    leaves(CONSTRUCT, "the version of torch", {"options": "assert torch.__version__"}),
    leaves(CONSTRUCT, "the time it starts", {"imports": "import time", "options": "start = time.time()"}),
    leaves(
        CONSTRUCT,
        "a flag about something else",
        {"options": OPTIONS.format(option='"--fast", action="store_true"').rstrip("\n")},
    ),
    leaves(
        CONSTRUCT,
        "a backend that is no device",
        {"options": OPTIONS.format(option='"--backend", default="agg"').rstrip("\n")},
    ),
    leaves(CONSTRUCT, "another seed after it", {"setup": "torch.manual_seed(2)"}),
    leaves(
        CONSTRUCT,
        "seeds of numpy stay first",
        {"imports": "import numpy as np", "options": "np.random.seed(1)"},
    ),
    leaves(
        CONSTRUCT,
        "the environment is set first",
        {"imports": "import os", "options": 'os.environ["OMP_NUM_THREADS"] = "1"'},
    ),
    leaves(
        CONSTRUCT,
        "warnings are silenced first",
        {"imports": "import warnings", "options": 'warnings.filterwarnings("ignore")'},
    ),
    leaves(
        CONSTRUCT,
        "a logger is asked for first",
        {"imports": "import logging", "options": "log = logging.getLogger(__name__)"},
    ),
    leaves(CONSTRUCT, "constant tensors before it", {"options": "classes = torch.arange(3)"}),
    leaves(
        CONSTRUCT,
        "layers that are only defined",
        {"definitions": "def layer():\n    return nn.Dropout(0.5)\n"},
    ),
    leaves(
        CONSTRUCT,
        "a host device beside it",
        {"setup": 'host = torch.device("cpu")\nzero = torch.zeros(1, device=host)'},
    ),
    leaves(CONSTRUCT, "in a function of its own", {}, main=True),
    leaves(
        CONSTRUCT,
        "in a function of its own, after the options",
        {
            "options": NO_CUDA.rstrip("\n"),
            "device": 'device = torch.device("cpu" if args.no_cuda else "cuda")',
        },
        {"device": "accelerator = Accelerator(cpu=args.no_cuda)"},
        main=True,
    ),
    leaves(
        CONSTRUCT,
        "an attribute of that name in a class",
        {"definitions": "class Car:\n    def __init__(self):\n        self.accelerator = 1\n"},
    ),
    refuses(
        CONSTRUCT,
        "the class's name is taken",
        {"definitions": "class Accelerator:\n    pass\n"},
        at="Points of three classes",
    ),
    leaves(
        CONSTRUCT,
        "options in a class",
        {
            "definitions": "class Options:\n    seed = 1\n    rate = 0.1\n",
            "options": "torch.manual_seed(Options.seed)",
        },
    ),
    leaves(
        CONSTRUCT,
        "the CPU by the author's own word",
        {"device": 'device = "cpu"', "batch": "", "model": "model = nn.Linear(8, 3)"},
        {"device": 'device = "cpu"', "model": "accelerator = Accelerator()\nmodel = nn.Linear(8, 3)"},
    ),
    refuses(
        CONSTRUCT,
        "the name is taken by a variable",
        {"setup": 'accelerator = "gas pedal"'},
        at="Points of three classes",
    ),
    refuses(
        CONSTRUCT,
        "the class's name is taken by a variable",
        {"setup": "Accelerator = 9.81"},
        at="Points of three classes",
    ),
    refuses(
        CONSTRUCT,
        "the name is read, and comes from somewhere",
        {"imports": "import builtins", "end": 'builtins.accelerator = "gas pedal"\nprint(accelerator)'},
        at="Points of three classes",
    ),
    refuses(
        CONSTRUCT,
        "the name is taken by a parameter",
        {"definitions": "def drive(accelerator):\n    return accelerator\n"},
        at="Points of three classes",
    ),
    leaves(IMPORT, "the word in a string or a comment", {"end": '# an accelerator\nnote = "accelerator"'}),
    leaves(
        IMPORT,
        "an attribute of that name",
        {"end": "print(model.accelerator)"},
        {"end": "accelerator.print(model.accelerator)"},
    ),
    leaves(
        CONSTRUCT,
        "use_cuda that still feeds pin_memory stays",
        {
            "options": CUDA + "use_cuda = args.cuda and torch.cuda.is_available()",
            "device": 'device = torch.device("cuda" if use_cuda else "cpu")',
            "data": SLOTS["data"].replace("shuffle=True", "shuffle=True, pin_memory=use_cuda"),
        },
        {"device": "accelerator = Accelerator(cpu=not args.cuda)"},
    ),
    leaves(CONSTRUCT, "the options are read first", {"options": NO_CUDA.rstrip("\n")}),
    leaves(
        CONSTRUCT,
        "determinism is asked for first",
        {"options": "torch.use_deterministic_algorithms(True)\ntorch.backends.cudnn.benchmark = False"},
    ),
    leaves(
        CONSTRUCT,
        "random seeds of other libraries stay first",
        {"options": "import random\n\nrandom.seed(1)"},
    ),
    leaves(
        CONSTRUCT,
        "a function that draws, defined and not called, is no draw",
        {
            "definitions": "def noise():\n    return torch.randn(3)\n",
        },
    ),
    leaves(
        CONSTRUCT,
        "a second device statement makes no second Accelerator",
        {
            "end": 'where = torch.device("cuda" if torch.cuda.is_available() else "cpu")\nx = torch.zeros(3, device=where)'
        },
        {"end": "where = accelerator.device\nx = torch.zeros(3, device=where)"},
    ),
    leaves(
        IMPORT, "an existing future import stays first", {"imports": "import os"}, {"imports": "import os"}
    ),
]


@each(POSITIVE, NEGATIVE)
def test_home(case: Case) -> None:
    case.check()


CALLED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(model, batch_size):
    train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))
    loader = DataLoader(train_set, batch_size=batch_size)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), "model.pt")


def main():
    model = nn.Linear(8, 3)
    train(model, 8)


def start():
    main()


start()
"""


def test_made_in_two_functions() -> None:
    """The model in the caller, the loader in the function: the Accelerator is there before either."""
    result = migrate_text(Path("train.py"), CALLED, Options())
    assert "def main():\n    accelerator = Accelerator()\n    model = nn.Linear(8, 3)" in result.after
    assert "    train(accelerator, model, 8)" in result.after


def test_made_where_it_cannot_be_seen() -> None:
    """A model from elsewhere: the Accelerator stands above the call that leads to training, below the imports."""
    given = CALLED.replace(
        "    model = nn.Linear(8, 3)\n    train(model, 8)", "    train(make(), 8)"
    ).replace("def start", "def make():\n    return nn.Linear(8, 3)\n\n\ndef start")
    result = migrate_text(Path("train.py"), given, Options())
    assert not [f for f in result.findings if f.rule == "CT001"], result.findings
    assert result.changed


AFTER_MAIN = """
    torch.save(model.state_dict(), "model.pt")
    print("saved")
"""


@pytest.mark.parametrize("way", ["main()", "run()"])
def test_what_stands_behind_the_call_of_main_makes_the_accelerator_again(way: str) -> None:
    text = script({**SLOTS, "end": "return model"}, main=True)
    run = "def run():\n    return main()\n\n\nif __name__"
    text = text.replace("    main()\n", f"    model = {way}\n{AFTER_MAIN}").replace("if __name__", run)
    result = migrate_text(Path("train.py"), text, Options())
    behind = result.after.partition("__main__")[2]
    assert f"model = {way}\n    accelerator = Accelerator()\n" in behind
    assert "    accelerator.save" in behind
    assert '    accelerator.print("saved")\n' in behind
    assert result.after.count("Accelerator()") == 2


def test_what_stands_before_the_call_of_main_has_no_accelerator() -> None:
    text = script(SLOTS, main=True).replace("    main()\n", '    print("begin")\n    main()\n')
    result = migrate_text(Path("train.py"), text, Options())
    assert '    print("begin")\n' in result.after
    assert result.after.count("Accelerator()") == 1


@pytest.mark.parametrize(
    "device",
    [
        'device = torch.device("cpu")\nseed = 1\nif args.cuda and torch.cuda.is_available():\n'
        '    torch.cuda.manual_seed(seed)\n    device = torch.device("cuda")',
        'if args.cuda:\n    device = torch.device("cuda")\n    torch.cuda.manual_seed(1)\n'
        'else:\n    device = torch.device("cpu")',
    ],
)
def test_a_switch_that_does_more_than_choose_a_gpu_is_obeyed(device: str) -> None:
    result = migrate_text(Path("train.py"), script({**SLOTS, "options": CUDA, "device": device}), Options())
    assert "accelerator = Accelerator(cpu=not args.cuda)\n" in result.after
    assert "torch.cuda.manual_seed(" in result.after


def test_a_teacher_that_is_moved_finds_the_process_device() -> None:
    """Nobody prepares it: what chooses the process's device must have been made before."""
    text = script(
        {
            **SLOTS,
            "device": "class Config:\n    device = 'cuda' if torch.cuda.is_available() else 'cpu'",
            "model": "teacher = nn.Linear(8, 3).to(Config.device)\nmodel = nn.Linear(8, 3).to(Config.device)",
            "batch": "x, y = x.to(Config.device), y.to(Config.device)",
            "loss": "with torch.no_grad():\n    soft = teacher(x).softmax(1)\nloss = F.cross_entropy(model(x), soft)",
        },
        main=True,
    )
    after = migrate_text(Path("train.py"), text, Options()).after
    assert after.index("Accelerator(") < after.index("teacher = ")
