"""CT306: autocast and GradScaler in every order become the accelerator's."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from crosstrain_verify import verify

from .support import Case, Slots, converts, each, leaves, migrate, refuses, unbroken

RULE = "CT306"
DEVICE = "accelerator = Accelerator({})  # the fastest there is"
CUDA = 'mixed_precision="fp16" if torch.cuda.is_available() else "no"'
LOSS = "with {}:\n    out = model(x)\n    loss = F.cross_entropy(out, y)"
ACCELERATED = LOSS.format("accelerator.autocast()")
OLD = {
    "setup": "scaler = torch.cuda.amp.GradScaler()",
    "loss": LOSS.format("torch.cuda.amp.autocast()"),
    "backward": "scaler.scale(loss).backward()",
    "step": "scaler.step(optimizer)\nscaler.update()",
}
OLD_AFTER = {
    "device": DEVICE.format(CUDA),
    "setup": "",
    "loss": ACCELERATED,
    "backward": "accelerator.backward(loss)",
    "step": "optimizer.step()",
}
PARSER = 'parser = argparse.ArgumentParser()\nparser.add_argument("--amp", action="store_true")\nargs = parser.parse_args()'
OPTION = {"imports": "import argparse", "options": PARSER}


def scaled(name: str, before: Slots, after: Slots, at: str = "", main: bool = False) -> Case:
    """A script with the old spelling, except for some slots."""
    return converts(RULE, name, {**OLD, **before}, {**OLD_AFTER, **after}, at=at or OLD["setup"], main=main)


def option(flag: str) -> str:
    return DEVICE.format(f'mixed_precision="fp16" if {flag} and torch.cuda.is_available() else "no"')


POSITIVE = [
    scaled("the old spelling", {}, {}),
    scaled(
        "imported by name",
        {
            "imports": "from torch.cuda.amp import GradScaler, autocast",
            "setup": "scaler = GradScaler()",
            "loss": LOSS.format("autocast()"),
        },
        {"imports": ""},
        at="scaler = GradScaler()",
    ),
    scaled(
        "the new spelling",
        {
            "setup": 'scaler = torch.amp.GradScaler("cuda")',
            "loss": LOSS.format('torch.amp.autocast("cuda", dtype=torch.float16)'),
        },
        {},
        at="GradScaler",
    ),
    scaled(
        "torch.autocast for CUDA has float16 by default",
        {"setup": "scaler = torch.amp.GradScaler()", "loss": LOSS.format('torch.autocast("cuda")')},
        {},
        at="GradScaler",
    ),
    converts(
        RULE,
        "bfloat16 needs no scaler",
        {"loss": LOSS.format("torch.autocast(device_type=device.type, dtype=torch.bfloat16)")},
        {"device": DEVICE.format('mixed_precision="bf16"'), "loss": ACCELERATED},
    ),
    converts(
        RULE,
        "a bfloat16 switch",
        {
            **OPTION,
            "loss": LOSS.format("torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.amp)"),
        },
        {"device": DEVICE.format('mixed_precision="bf16" if args.amp else "no"'), "loss": ACCELERATED},
        at="autocast",
    ),
    scaled(
        "an option switches both",
        {
            **OPTION,
            "setup": "scaler = torch.cuda.amp.GradScaler(enabled=args.amp)",
            "loss": LOSS.format("torch.cuda.amp.autocast(enabled=args.amp)"),
        },
        {"device": option("args.amp")},
        at="GradScaler",
    ),
    scaled(
        "a variable that already asks for CUDA",
        {
            **OPTION,
            "options": PARSER + "\nuse_amp = args.amp and torch.cuda.is_available()",
            "setup": "scaler = torch.cuda.amp.GradScaler(enabled=use_amp)",
            "loss": LOSS.format("torch.cuda.amp.autocast(enabled=use_amp)"),
        },
        {"device": DEVICE.format('mixed_precision="fp16" if use_amp else "no"')},
        at="GradScaler",
    ),
    scaled(
        "a variable that is known too late is spelled out",
        {
            **OPTION,
            "data": "use_amp = args.amp\ntrain_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
            "train_loader = DataLoader(train_set, batch_size=8, shuffle=True)",
            "setup": "scaler = torch.cuda.amp.GradScaler(enabled=use_amp)",
            "loss": LOSS.format("torch.cuda.amp.autocast(enabled=use_amp)"),
        },
        {
            "device": option("args.amp"),
            "data": "train_set = TensorDataset(torch.ones(48, 8), torch.zeros(48, dtype=torch.long))\n"
            "train_loader = DataLoader(train_set, batch_size=8, shuffle=True)",
        },
        at="GradScaler",
    ),
    scaled(
        "a region that may be none",
        {
            "imports": "import argparse\nfrom contextlib import nullcontext",
            "options": PARSER,
            "setup": "scaler = torch.cuda.amp.GradScaler(enabled=args.amp)",
            "loss": LOSS.format("torch.cuda.amp.autocast() if args.amp else nullcontext()"),
        },
        {"imports": "import argparse", "device": option("args.amp")},
        at="GradScaler",
    ),
    scaled(
        "two branches that differ in scaling alone become one",
        {
            **OPTION,
            "setup": "scaler = torch.cuda.amp.GradScaler() if args.amp else None",
            "loss": LOSS.format("torch.cuda.amp.autocast(enabled=args.amp)"),
            "backward": "if scaler is not None:\n    scaler.scale(loss).backward()\n    scaler.step(optimizer)\n    scaler.update()\n"
            "else:\n    loss.backward()\n    optimizer.step()",
            "step": "",
        },
        {"device": option("args.amp")},
        at="GradScaler",
    ),
    scaled(
        "clipping unscales",
        {
            "step": "scaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
            "scaler.step(optimizer)\nscaler.update()"
        },
        {"step": "accelerator.clip_grad_norm_(model.parameters(), 1.0)\noptimizer.step()"},
    ),
    scaled(
        "gradients that are read must be unscaled",
        {
            "step": "scaler.unscale_(optimizer)\nlargest = max(p.grad.abs().max() for p in model.parameters())\n"
            "scaler.step(optimizer)\nscaler.update()"
        },
        {
            "step": "accelerator.unscale_gradients(optimizer)\n"
            "largest = max(p.grad.abs().max() for p in model.parameters())\noptimizer.step()"
        },
    ),
    scaled(
        "a loss that is divided first",
        {"backward": "scaler.scale(loss / 2).backward()"},
        {"backward": "accelerator.backward(loss / 2)"},
    ),
    scaled(
        "backward keeps its arguments",
        {"backward": "scaler.scale(loss).backward(retain_graph=True)"},
        {"backward": "accelerator.backward(loss, retain_graph=True)"},
    ),
    scaled(
        "the scaler's state is kept and loaded",
        {
            "setup": 'scaler = torch.cuda.amp.GradScaler()\nscaler.load_state_dict(torch.load("scale.pt"))',
            "after_epoch": 'torch.save({"model": model.state_dict(), "scaler": scaler.state_dict()}, "all.pt")',
        },
        {
            "setup": "if accelerator.scaler is not None:\n"
            '    accelerator.scaler.load_state_dict(torch.load("scale.pt"))',
            "after_epoch": 'accelerator.save({"model": model.state_dict(), '
            '"scaler": accelerator.scaler.state_dict() if accelerator.scaler is not None else {}}, "all.pt")',
        },
        at="scaler = torch",
    ),
]

FUNCTION = '''\
def update(loss, optimizer, scaler):
    """One step."""
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()'''
FUNCTION_AFTER = '''\
def update(loss, optimizer):
    """One step."""
    accelerator.backward(loss)
    optimizer.step()'''
POSITIVE.append(
    scaled(
        "a function that is given the scaler",
        {"definitions": FUNCTION, "backward": "update(loss, optimizer, scaler)", "step": ""},
        {"definitions": FUNCTION_AFTER, "backward": "update(loss, optimizer)", "step": ""},
        at="def update",
    )
)

EVALUATION = "model.eval()\nwith torch.no_grad():\n    right = sum((model(a).argmax(1) == b).sum().item() for a, b in [(x, y)])"
HALF = LOSS.format("torch.cuda.amp.autocast()")
NEGATIVE = [
    leaves(
        RULE,
        "float16 without a scaler stays the author's",
        {"loss": HALF},
        findings=[(RULE, "autocast")],
    ),
    leaves(
        RULE,
        "regions of the CPU stay the author's",
        {"loss": LOSS.format('torch.autocast("cpu", dtype=torch.bfloat16)')},
        findings=[(RULE, "autocast")],
    ),
    leaves(
        RULE,
        "a dtype that is computed stays the author's",
        {
            "options": "half = torch.bfloat16 if torch.cuda.is_available() else torch.float16",
            "loss": LOSS.format('torch.autocast("cuda", dtype=half)'),
        },
        findings=[(RULE, "with torch.autocast")],
    ),
    leaves(
        RULE,
        "a region inside the model stays there",
        {
            "definitions": "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
            "        self.layer = nn.Linear(8, 3)\n\n    def forward(self, x):\n"
            '        with torch.autocast("cuda", dtype=torch.bfloat16):\n            return self.layer(x)',
            "model": "model = Net().to(device)",
        },
        {"model": "model = Net()"},
        findings=[(RULE, "with torch.autocast")],
    ),
    leaves(
        RULE,
        "another autocast",
        {"imports": "from numbers_of_mine import autocast", "loss": LOSS.format("autocast()")},
    ),
    leaves(
        RULE,
        "another thing called scaler",
        {
            "imports": "from sklearn.preprocessing import StandardScaler",
            "setup": "scaler = StandardScaler()\nscaler.fit([[0.0], [1.0]])",
        },
    ),
]


def refused(name: str, before: Slots, at: str) -> Case:
    return refuses(RULE, name, {**OLD, **before}, at)


REFUSED = [
    refused("the scale is read", {"after_epoch": "print(scaler.get_scale())"}, "get_scale"),
    refused("the scale is set", {"step": "scaler.step(optimizer)\nscaler.update(128.0)"}, "update(128"),
    refused(
        "two scalers",
        {"setup": "scaler = torch.cuda.amp.GradScaler()\nother = torch.cuda.amp.GradScaler()"},
        "other =",
    ),
    refused(
        "a step with a closure",
        {"step": "scaler.step(optimizer, lambda: loss)\nscaler.update()"},
        "lambda",
    ),
    refused(
        "a scaled loss that is used otherwise",
        {
            "backward": "grads = torch.autograd.grad(scaler.scale(loss), model.parameters())\nscaler.scale(loss).backward()"
        },
        "grads =",
    ),
    refused(
        "a scaler given away",
        {"imports": "from somewhere import watch", "after_epoch": "watch(scaler)"},
        "watch(scaler)",
    ),
    refused(
        "branches that differ",
        {
            **OPTION,
            "setup": "scaler = torch.cuda.amp.GradScaler() if args.amp else None",
            "backward": "if scaler is not None:\n    scaler.scale(loss).backward()\nelse:\n    (loss * 2).backward()",
        },
        "if scaler is not None",
    ),
]


@each(POSITIVE, NEGATIVE, REFUSED)
def test_precision(case: Case) -> None:
    case.check()


def test_a_model_that_also_runs_outside_keeps_its_numbers() -> None:
    """Validation in full precision: the author's regions stay, and only the scaler is replaced."""
    case = scaled(
        "outside",
        {"after_epoch": "model.eval()\nwith torch.no_grad():\n    print(model(torch.ones(1, 8)).sum())"},
        {},
    )
    result = migrate(case.script)
    assert "with torch.cuda.amp.autocast():" in result.after
    assert "kwargs_handlers=[AutocastKwargs(enabled=False)]" in result.after
    assert "from crosstrain.utils import AutocastKwargs" in result.after
    assert "scaler" not in result.after
    assert [f.rule for f in result.findings] == [RULE]


def test_options_of_the_scale_are_passed_on() -> None:
    setup = "scaler = torch.cuda.amp.GradScaler(init_scale=1024.0, growth_interval=100)"
    result = migrate(scaled("options", {"setup": setup}, {}).script)
    assert "from crosstrain.utils import GradScalerKwargs" in result.after
    assert (
        f"accelerator = Accelerator({CUDA}, kwargs_handlers=[GradScalerKwargs(init_scale=1024.0, growth_interval=100)])"
        in unbroken(result.after)
    )


RUNS = {
    "the old spelling": OLD,
    "clipping": {
        **OLD,
        "step": "scaler.unscale_(optimizer)\ntorch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n"
        "scaler.step(optimizer)\nscaler.update()\nprint(loss.item())",
    },
    "bfloat16": {
        "loss": LOSS.format("torch.autocast(device.type, dtype=torch.bfloat16)"),
        "after_step": "print(loss.item())",
    },
    "bfloat16, validated in full precision": {
        "loss": LOSS.format("torch.autocast(device.type, dtype=torch.bfloat16)"),
        "after_epoch": "model.eval()\nwith torch.no_grad():\n    print(model(torch.ones(1, 8)).sum().item())",
    },
}


@pytest.mark.parametrize("devices", ["absent", "present"])
@pytest.mark.parametrize("name", RUNS)
def test_one_process_computes_the_same_bits(
    name: str, devices: Literal["absent", "present"], tmp_path: Path
) -> None:
    """Without a GPU, where torch leaves CUDA's autocast off, and with one (the CPU, computing in CUDA's precision)."""
    data = (
        "torch.manual_seed(3)\ntrain_set = TensorDataset(torch.randn(48, 8), torch.arange(48) % 3)\n"
        "train_loader = DataLoader(train_set, batch_size=8, shuffle=True)"
    )
    case = converts(RULE, name, {**RUNS[name], "data": data}, {})
    result = migrate(case.script)
    assert result.changed, result.findings
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text(case.script)
    after.write_text(result.after)
    report = verify(before, after, args=(), processes=(1,), expect="equal", timeout=120, devices=devices)
    assert [run.verdict.value for run in report.runs] == ["identical"], report


@pytest.mark.parametrize(
    ("asked", "device"),
    [
        ('device.type == "cuda"', None),
        ('device.type != "cpu"', None),
        ('device == "cuda"', 'device = "cuda" if torch.cuda.is_available() else "cpu"'),
        (
            'Config.device.type == "cuda"',
            'class Config:\n    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n\n\n'
            "device = Config.device",
        ),
        (
            'device.type == "cuda"',
            'device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")',
        ),
    ],
)
def test_a_switch_that_asks_the_device(asked: str, device: str | None) -> None:
    """The device is the Accelerator's, which must be told before: what chose the device is asked instead."""
    slots = {
        **OLD,
        "setup": f"scaler = torch.amp.GradScaler(enabled={asked})",
        "loss": LOSS.format(f'torch.autocast("cuda", enabled={asked})'),
        **({"device": device} if device else {}),
    }
    after = unbroken(migrate(converts(RULE, "asked", slots, {}).script).after)
    assert CUDA in after
    assert "with accelerator.autocast():" in after
    assert "scaler" not in after


TRAINER = """\
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Trainer:
    def __init__(self, args):
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.net = nn.Linear(8, 3).to(self.device)
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.1)
        self.loader = DataLoader(TensorDataset(torch.ones(48, 8), torch.ones(48).long()), 8)
        self.fp16 = {switch}
        self.scaler = torch.amp.GradScaler("cuda", enabled=self.fp16)

    def train(self):
        for x, y in self.loader:
            self.optimizer.zero_grad()
            with torch.autocast("cuda", enabled=self.fp16):
                loss = nn.functional.cross_entropy(self.net(x.to(self.device)), y.to(self.device))
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()

parser = argparse.ArgumentParser()
parser.add_argument("--fp16", action="store_true")
Trainer(parser.parse_args()).train()
"""


def test_a_switch_of_the_object_that_is_set_later() -> None:
    """`self.fp16` does not exist yet where the Accelerator is made; what it is set to does."""
    after = unbroken(migrate(TRAINER.format(switch="args.fp16 and torch.cuda.is_available()")).after)
    assert 'mixed_precision="fp16" if args.fp16 and torch.cuda.is_available() else "no"' in after


def test_a_switch_of_the_object_that_cannot_be_known_before_is_refused() -> None:
    refused = migrate(TRAINER.format(switch="self.net.weight.is_cuda and len(input()) > 0"))
    assert refused.refused
    assert any(
        "`self.fp16`, which decides about mixed precision, is set below" in f.reason for f in refused.findings
    )


CLIPPED = {
    **OLD,
    "step": "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nscaler.step(optimizer)\nscaler.update()",
}


@pytest.mark.parametrize(
    ("unscale", "said"), [("", ["CT306"]), ("scaler.unscale_(optimizer)\n", [])], ids=["scaled", "unscaled"]
)
def test_clipping_of_scaled_gradients_is_told(unscale: str, said: list[str]) -> None:
    """The accelerator unscales before it clips, so a limit for scaled gradients is another one afterwards."""
    case = converts(RULE, "clipped", {**CLIPPED, "step": unscale + CLIPPED["step"]}, {})
    result = migrate(case.script)
    assert "accelerator.clip_grad_norm_(model.parameters(), 1.0)" in result.after
    assert [f.rule for f in result.findings if "while they were scaled" in f.reason] == said
