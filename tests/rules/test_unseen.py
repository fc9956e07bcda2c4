"""CT905 and its neighbours: a script that trains is never left without a word."""

from __future__ import annotations

from pathlib import Path

import pytest
from crosstrain_migrate.engine import migrate_text
from crosstrain_migrate.results import FileResult, Options, Severity
from crosstrain_migrate.syntax.program import link

NET = """\
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 2)

    def forward(self, x):
        return self.line(x)
"""
SCRIPT = """\
import torch
import torch.nn.functional as F
from net import Net
from torch.utils.data import DataLoader, TensorDataset
<imports>

<decorator>
def train():
    data = TensorDataset(torch.ones(8, 4), torch.zeros(8, dtype=torch.long))
    loader = DataLoader(data, batch_size=2)
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


<run>
"""


def _program(imports: str, run: str, decorator: str = "") -> FileResult:
    """A script of two files. A single file's functions need no call: it is taken to run them."""
    text = SCRIPT.replace("<imports>", imports).replace("<decorator>\n", decorator and f"{decorator}\n")
    whole = link([("net.py", NET), ("train.py", text.replace("<run>", run))], (".",))
    return migrate_text(Path("train.py"), whole, Options())


@pytest.mark.parametrize(
    ("imports", "run", "decorator"),
    [
        ("", "train()", ""),
        ("import sys", "globals()[sys.argv[1]]()", ""),
        ("import fire", "fire.Fire()", ""),
        ("import fire", "fire.Fire(train)", ""),
        ("import fire", 'fire.Fire({"train": train})', ""),
        ("import click", "train()", "@click.command()"),
        ("import typer\n\napp = typer.Typer()", "app()", "@app.command()"),
        ("import click\n\n\n@click.group()\ndef cli():\n    pass\n", "cli()", "@cli.command()"),
    ],
)
def test_what_a_command_line_names_is_run(imports: str, run: str, decorator: str) -> None:
    result = _program(imports, run, decorator)
    assert result.trains
    assert result.changed
    assert "accelerator.backward(" in result.after


def test_methods_that_fire_names_are_run() -> None:
    text = SCRIPT.replace("<imports>", "import fire").replace("<decorator>\n", "")
    head, body = text.split("def train():\n")
    body, _ = body.split("\n\n<run>")
    inner = "".join(f"    {line}" for line in f"def train(self):\n{body}".splitlines(keepends=True))
    whole = link([("net.py", NET), ("train.py", f"{head}class Jobs:\n{inner}\n\nfire.Fire(Jobs)\n")], (".",))
    result = migrate_text(Path("train.py"), whole, Options())
    assert result.changed


def test_a_loop_that_nothing_runs_is_named() -> None:
    (found,) = _program("", 'print("nothing to do")').findings
    assert (found.rule, found.severity) == ("CT905", Severity.NOTE)
    assert "`train`" in found.reason


@pytest.mark.parametrize(
    ("imports", "run"),
    [
        ("import sys", "getattr(sys.modules[__name__], sys.argv[1])()"),
        ("import importlib", 'importlib.import_module("jobs").main()'),
    ],
)
def test_a_loop_that_may_be_run_by_its_name_is_refused(imports: str, run: str) -> None:
    result = _program(imports, run)
    (found,) = result.findings
    assert (found.rule, found.severity) == ("CT905", Severity.REFUSED)
    assert not result.changed


def test_a_loop_in_a_file_that_is_only_imported_is_not_this_scripts() -> None:
    text = SCRIPT.replace("<imports>", "").replace("<decorator>\n", "").replace("<run>", "")
    whole = link(
        [("net.py", NET), ("train.py", text), ("predict.py", "from train import Net\n\nprint(Net())\n")],
        (".",),
    )
    assert not migrate_text(Path("predict.py"), whole, Options()).findings


HIDDEN = """\
import torch
from timm.utils import NativeScaler

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = NativeScaler()
scaler(model(torch.ones(1, 2)).sum(), optimizer)
"""
LIGHTNING = """\
import lightning
import torch


class Net(lightning.LightningModule):
    def training_step(self, batch, index):
        return self(batch).sum()


lightning.Trainer().fit(Net())
"""
TRANSFORMERS = """\
from transformers import (
    AutoModel,
    Trainer,
)

Trainer(AutoModel.from_pretrained("x")).train()
"""
ACCELERATE = """\
import torch
from accelerate import Accelerator

accelerator = Accelerator()
accelerator.backward(torch.ones(1, requires_grad=True))
"""


@pytest.mark.parametrize(
    ("text", "rule", "severity", "says"),
    [
        (HIDDEN, "CT202", Severity.REFUSED, "timm's NativeScaler"),
        (LIGHTNING, "CT901", Severity.NOTE, "Lightning"),
        (TRANSFORMERS, "CT901", Severity.NOTE, "the Transformers Trainer"),
        (ACCELERATE, "CT901", Severity.NOTE, "Accelerate"),
    ],
)
def test_training_without_a_backward_of_its_own(text: str, rule: str, severity: Severity, says: str) -> None:
    result = migrate_text(Path("train.py"), text, Options())
    (found,) = result.findings
    assert not result.changed
    assert (found.rule, found.severity) == (rule, severity)
    assert says in found.reason


@pytest.mark.parametrize(
    "text",
    [
        LIGHTNING[: LIGHTNING.index("lightning.Trainer")],  # a module that others train
        "import torch\nimport timm\n\nprint(timm.create_model('resnet18'))\n",
        "from transformers import AutoModel\n\nprint(AutoModel)\n",
        "import torch\n\n\nclass Trainer:\n    pass\n\n\nTrainer().train()\n",
    ],
)
def test_what_does_not_train_needs_no_word(text: str) -> None:
    assert not migrate_text(Path("train.py"), text, Options()).findings


def test_a_loss_of_a_library_goes_backward() -> None:
    """What an imported function returns is a loss where it goes backward by itself, and an engine where it is given one."""
    before = """\
import torch
from losses import contrast
from torch.utils.data import DataLoader

model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.ones(8, 4), batch_size=2):
    optimizer.zero_grad()
    loss = contrast(model)
    <backward>
    optimizer.step()
"""
    own = migrate_text(Path("train.py"), before.replace("<backward>", "loss.backward()"), Options())
    engine = migrate_text(
        Path("train.py"), before.replace("<backward>", "loss.backward(model(x))"), Options()
    )
    assert own.trains
    assert not engine.trains
