"""The flags that choose a device mean after the conversion what they meant before: each script is run both ways.

CUDA is faked: what is moved is asked for its device and stays where it is, and the accelerator only says its device.
"""

import sys
from textwrap import indent
from types import ModuleType
from typing import Any

import pytest
import torch
from crosstrain import options

from .converting import conversion
from .filling import filled

OPTIONS = """import argparse
<torch>
parser = argparse.ArgumentParser()
"""

TRAINING = """
model = nn.Linear(4, 2)
{moved}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = [(torch.ones(4), torch.ones(2))]
for x, y in DataLoader(data, 1):
    {batch}
    <step nn.functional.mse_loss(model(x), y)>
"""
TO_DEVICE = TRAINING.format(moved="model.to(device)", batch="x, y = x.to(device), y.to(device)")

SWITCH = {
    "no_cuda": ('"--no_cuda", action="store_true"', [[], ["--no_cuda"]]),
    "cpu": ('"--cpu", action="store_true"', [[], ["--cpu"]]),
    "cuda": ('"--cuda", action="store_true"', [[], ["--cuda"]]),
    "use_cuda": ('"--use_cuda", type=int, default=1', [[], ["--use_cuda", "0"], ["--use_cuda", "1"]]),
    "gpu": ('"--gpu", type=int, default=-1', [[], ["--gpu", "0"], ["--gpu", "-1"]]),
    "device": ('"--device", default="cuda"', [[], ["--device", "cpu"], ["--device", "cuda"]]),
    "auto": (
        '"--device", default="auto"',
        [[], ["--device", "cpu"], ["--device", "cuda"], ["--device", "auto"]],
    ),
}


def _spelling(row: str) -> tuple[str, str]:
    """An option, and code with ` | ` for the end of a line."""
    option, _, code = row.partition(": ")
    code = code.replace("<there>", "torch.cuda.is_available()").replace("<device>", "torch.device")
    return option, code.replace(" | ", "\n")


SPELLED = """no_cuda: device = <device>("cuda" if not args.no_cuda and <there> else "cpu")
no_cuda: args.cuda = not args.no_cuda and <there> | device = <device>("cuda" if args.cuda else "cpu")
no_cuda: device = <device>("cpu") | if not args.no_cuda and <there>: |     device = <device>("cuda:0")
no_cuda: use_cuda = <there> | if args.no_cuda: |     use_cuda = False | device = "cuda" if use_cuda else\
 "cpu"
cpu: device = "cpu" if args.cpu else "cuda"
cpu: device = "cuda" if <there> else "cpu" | if args.cpu: |     device = "cpu"
cpu: if args.cpu or not <there>: |     device = <device>("cpu") | else: |     device = <device>("cuda")
cpu: if not <there>: |     args.cpu = True | device = "cpu" if args.cpu else "cuda"
cpu: def pick(options): |     if options.cpu: |         return <device>("cpu") |     return\
 <device>("cuda" if <there> else "cpu") |  | device = pick(args)
cpu: def pick(cpu): |     if not cpu and <there>: |         return <device>("cuda") |     return\
 <device>("cpu") |  | device = pick(args.cpu)
cuda: if <there> and not args.cuda: |     print("you have a GPU") | device = <device>("cuda" if args.cuda\
 else "cpu")
cuda: if args.cuda and not <there>: |     args.cuda = False | device = <device>("cuda" if args.cuda else\
 "cpu")
cuda: device = "cpu" | if args.cuda: |     if <there>: |         device = "cuda" |     else: |\
         print("no GPU")
cuda: device = {True: "cuda", False: "cpu"}[args.cuda]
cuda: device = args.cuda and "cuda" or "cpu"
use_cuda: device = <device>("cuda" if args.use_cuda else "cpu")
use_cuda: use_cuda = bool(args.use_cuda) and <there> | device = <device>("cuda" if use_cuda else "cpu")
gpu: device = <device>("cuda:%d" % args.gpu if args.gpu >= 0 else "cpu")
gpu: device = <device>(f"cuda:{args.gpu}") if args.gpu != -1 else <device>("cpu")
gpu: if args.gpu < 0: |     device = <device>("cpu") | else: |     device = <device>("cuda", args.gpu)
gpu: if args.gpu >= 0: |     if <there>: |         args.gpu = <device>("cuda", args.gpu) |     else: |\
         args.gpu = <device>("cpu") | else: |     args.gpu = <device>("cpu") | device = args.gpu
device: device = args.device
device: device = <device>(args.device if <there> else "cpu")
device: device = "cuda" if args.device == "cuda" and <there> else "cpu"
device: if args.device == "cuda" and not <there>: |     args.device = "cpu" | device = <device>(args.device)
device: if args.device.startswith("cuda") and not <there>: |     print("no GPU") |     device =\
 <device>("cpu") | else: |     device = <device>(args.device)
auto: device = args.device | if device == "auto": |     device = "cuda" if <there> else "cpu"
auto: if args.device == "auto": |     args.device = "cuda" if <there> else "cpu" | device =\
 <device>(args.device)
auto: def pick(name): |     if name == "auto": |         return <device>("cuda" if <there> else "cpu") |\
     return <device>(name) |  | device = pick(args.device)"""
SPELLINGS = list(map(_spelling, SPELLED.splitlines()))

MOVED = """cuda: if args.cuda: |     model.cuda() / if args.cuda: |         x, y = x.cuda(), y.cuda()
no_cuda: if not args.no_cuda: |     model = model.cuda() / if not args.no_cuda: |         x, y = x.cuda(),\
 y.cuda()
gpu: if args.gpu >= 0: |     model.cuda(args.gpu) / if args.gpu >= 0: |         x, y = x.cuda(args.gpu),\
 y.cuda(args.gpu)
use_cuda: model = model.cuda() if args.use_cuda else model / if args.use_cuda: |         x, y = x.cuda(),\
 y.cuda()
device: model.to(args.device) / x, y = x.to(args.device), y.to(args.device)
device: model.to(device=args.device) / x, y = x.to(args.device), y.to(args.device)
cpu: model.to("cpu" if args.cpu else "cuda") / x, y = x.to("cpu" if args.cpu else "cuda"), y.to("cpu" if\
 args.cpu else "cuda")"""
MOVES = [(option, *code.split(" / ")) for option, code in map(_spelling, MOVED.splitlines())]

IN_CLASS = """import argparse
<torch>
class Trainer:
    def __init__(self, args):
        self.args = args
        self.model = nn.Linear(4, 2)
        self.device = self.choose()
        self.model.to(self.device)
    def choose(self):
        args = self.args
{choice}
        return device
    def train(self):
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        data = [(torch.ones(4), torch.ones(2))]
        for x, y in DataLoader(data, 1):
            x, y = x.to(self.device), y.to(self.device)
            <step nn.functional.mse_loss(self.model(x), y)>
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument({option})
    args = parser.parse_args()
    print(args)
    trainer = Trainer(args)
    trainer.train()
    return trainer.model
if __name__ == "__main__":
    model = main()
"""


class Stop(Exception):
    """The first accelerator is made: its device's type, and the number that it is told."""


def _script(option: str, choice: str, training: str) -> str:
    return (
        f"{OPTIONS}parser.add_argument({SWITCH[option][0]})\nargs = parser.parse_args()\n{choice}\n{training}"
    )


SCRIPTS = [
    *(pytest.param(option, _script(option, choice, TO_DEVICE), id=choice) for option, choice in SPELLINGS),
    *(
        pytest.param(option, _script(option, "", TRAINING.format(moved=moved, batch=batch)), id=moved)
        for option, moved, batch in MOVES
    ),
]


class _Accelerator:
    """The runtime's, as far as it chooses a device."""

    def __init__(self, cpu: bool = False, device: Any = None, **more: Any) -> None:
        if type(cpu) not in (bool, int):
            raise TypeError(cpu)
        asked, number = options.device(cpu, device)
        raise Stop("cpu" if asked or not torch.cuda.is_available() else "cuda", number)


def _moved(module: torch.nn.Module, device: Any = "cuda") -> torch.nn.Module:
    module.moved = torch.device(device).type if not isinstance(device, int) else "cuda"  # type: ignore[assignment]
    return module


def begin(text: str, flags: list[str], there: bool, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Runs a script until its first accelerator; its names where it makes none."""
    runtime = ModuleType("crosstrain")
    runtime.Accelerator = runtime.PartialState = _Accelerator  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "crosstrain", runtime)
    monkeypatch.setattr(sys, "argv", ["script.py", *flags])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: there)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: int(there))
    monkeypatch.setattr(torch.nn.Module, "to", _moved)
    monkeypatch.setattr(torch.nn.Module, "cuda", _moved)
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, *given, **more: tensor)
    monkeypatch.setattr(torch.Tensor, "cuda", lambda tensor, *given: tensor)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(filled(text), names)
    return names


def _device(*run: Any) -> str:
    """The device of a script's training."""
    try:
        return getattr(begin(*run)["model"], "moved", "cpu")
    except Stop as made:
        return str(made.args[0])


OWN_FLAG = 'self.on_gpu = args.cuda\ndevice = "cuda" if self.on_gpu else "cpu"'

# What a class decides in words that the beginning cannot ask.
SAID_IN_CLASSES = (
    "use_cuda = False",
    "if torch.cuda.is_available():\n                device",
    'device = {True: "cuda", False: "cpu"}[args.cuda]',
    'device = args.cuda and "cuda" or "cpu"',
    "use_cuda = bool(args.use_cuda)",
)
IN_CLASSES = [
    pytest.param(option, IN_CLASS.format(option=SWITCH[option][0], choice=indent(choice, " " * 8)), id=choice)
    for option, choice in (*SPELLINGS, ("cuda", OWN_FLAG))
    if "def " not in choice
]


@pytest.mark.parametrize(("option", "text"), SCRIPTS)
def test_a_flag_means_what_it_meant(option: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, _ = _compared(option, text, monkeypatch)
    assert not wrong


@pytest.mark.parametrize(("option", "text"), IN_CLASSES)
def test_a_flag_that_a_class_reads_means_what_it_meant_or_is_said(
    option: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, said = _compared(option, text, monkeypatch)
    assert bool(wrong) is any("choice of the CPU is not kept" in one for one in said), (wrong, said)
    assert bool(wrong) is any(one in text for one in SAID_IN_CLASSES)


def _compared(option: str, text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[list[object], list[str]]:
    """The flags that choose another device after the conversion, and its notes on devices."""
    done = conversion(text)
    assert "Accelerator" in done.text
    wrong: list[object] = []
    for flags in SWITCH[option][1]:
        for there in (True, False):
            with monkeypatch.context() as patched:
                before, now = (_device(one, flags, there, patched) for one in (text, done.text))
            if now != (before if there else "cpu"):
                wrong.append((flags, there, before, now))
    return wrong, [one.reason for one in done.findings if one.rule == "CT105"]
