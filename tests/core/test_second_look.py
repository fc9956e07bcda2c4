"""What a review found of rules that went too far: each script keeps what it had without them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .converting import conversion, converted, notes
from .projects import write

STEP = """
import random
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

rows = torch.arange(32.0).reshape(16, 2)
loader = DataLoader(TensorDataset(rows, rows[:, :1]), batch_size=4)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
skipped = 0
for x, y in loader:
    optimizer.zero_grad()
{step}
"""
TRAINS_IN_THE_TEST = """
    if torch.isfinite(x).all():
        F.mse_loss(model(x), y).backward()
        optimizer.step()
        continue
    skipped += 1"""
READS_WHAT_IS_BAD = """
    bad = x.sum(1) > 50
    if bad.any():
        print("bad row", x[bad][0])
        continue
    F.mse_loss(model(x), y).backward()
    optimizer.step()"""
NOISE = """
    loss = F.mse_loss(model(x + torch.randn_like(x)), y)
    if loss > 0.8:
        continue
    loss.backward()
    optimizer.step()"""
OWN_ROW = """
    label = random.choice(y.tolist())
    if label == 0:
        continue
    F.mse_loss(model(x), y).backward()
    optimizer.step()"""


@pytest.mark.parametrize("step", [TRAINS_IN_THE_TEST, READS_WHAT_IS_BAD])
def test_a_test_whose_branch_does_more_than_leave_out_is_each_process_s_own(step: str) -> None:
    text = STEP.format(step=step)
    assert '"sum") > 0' not in converted(text)
    assert [one for one in notes(text, "CT605") if "makes the others wait" in one.reason], "and is said"


SAYS_IT = """
    loss = F.mse_loss(model(x), y)
    if loss.item() == float("inf"):
        print("no finite loss", loss.item())
        loss = torch.zeros_like(loss)
        continue
    loss.backward()
    optimizer.step()"""


def test_all_leave_out_a_batch_where_the_branch_only_says_so() -> None:
    test = 'if accelerator.reduce(int(bool(loss.item() == float("inf"))), "sum") > 0:'
    assert test in converted(STEP.format(step=SAYS_IT))
    assert not notes(STEP.format(step=SAYS_IT), "CT605")
    counts = SAYS_IT.replace("        continue", "        skipped += 1\n        continue")
    assert '"sum") > 0' not in converted(STEP.format(step=counts)), "what is counted is each process's own"


@pytest.mark.parametrize("step", [NOISE, OWN_ROW])
def test_noise_and_a_choice_among_own_rows_are_no_coins(step: str) -> None:
    assert "common_draws" not in converted(STEP.format(step=step))


@pytest.mark.parametrize(
    "loss",
    [
        "loss = F.mse_loss(model(x), y, reduction='sum') + 0.01 * model.weight.norm()\n    loss /= len(x)",
        "part = F.mse_loss(model(x), y, reduction='sum')\n    part /= len(x)\n    loss = part + model.weight.norm()",
    ],
)
def test_a_sum_that_is_divided_later_is_no_sum(loss: str) -> None:
    text = STEP.format(step=f"    {loss}\n    loss.backward()\n    optimizer.step()")
    assert "loss_reduction" not in converted(text)


def test_a_length_beside_a_batch_does_not_make_it_a_number() -> None:
    text = STEP.format(
        step="    for at in range(longest):\n        x = x + at\n    F.mse_loss(model(x), y).backward()\n"
        "    optimizer.step()"
    ).replace("for x, y in loader:", "for x, y, longest in batches(loader):")
    text = text.replace("skipped = 0\n", "\ndef batches(of):\n    for x, y in of:\n        yield x, y, 3\n\n")
    assert ".prepare(" in converted(text) and not notes(text, "CT902")


def test_gradients_that_the_caller_steps_by_are_trained() -> None:
    text = """
import torch
from torch.utils.data import DataLoader

def noisy(model, x):
    noise = torch.zeros_like(x)
    noise.requires_grad_()
    model(x + noise).mean().backward()
    return noise.grad

model = torch.nn.Linear(2, 1)
other = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first = torch.optim.SGD(other.parameters(), lr=0.1)
loader = DataLoader(torch.randn(8, 2), batch_size=2)
warm_up = DataLoader(torch.randn(8, 2), batch_size=2)
def start():
    for x in warm_up:
        other(x).mean().backward()
        first.step()
def train():
    for x in loader:
        optimizer.zero_grad()
        noisy(model, x)
        optimizer.step()
start()
train()
"""
    after = converted(text)
    assert after.count("accelerator.backward(") == 2
    assert "loader" in after.split("accelerator.prepare(")[1]


@pytest.mark.parametrize("name", ["utils", "init_empty_weights"])
def test_a_module_that_uses_accelerate_is_not_half_converted(name: str, tmp_path: Path) -> None:
    from crosstrain_migrate.choices import Mode
    from crosstrain_migrate.cli.run import Request, run
    from crosstrain_migrate.engine import migrate_text
    from crosstrain_migrate.results import Options

    engine = f"from accelerate import {name}\n\ndef fit(model, loader, optimizer):\n    for x in loader:\n"
    engine += "        model(x).mean().backward()\n        optimizer.step()\n"
    script = STEP.split("skipped")[0] + "from engine import fit\nfit(model, loader, optimizer)\n"
    folder = write(tmp_path, engine=engine, script=script)
    outcome = run(Request((folder / "script.py",), Options(), Mode.WRITE, cache=False), migrate_text)
    assert not outcome.changed and (folder / "script.py").read_text() == script.lstrip()
    said = [one.reason for file in outcome.files for one in file.result.findings]
    assert ["imports from Accelerate" in one for one in said] == [True], "and not that it does not train"


def test_a_writer_s_method_that_is_given_on_is_no_call_of_it() -> None:
    text = STEP.format(step="    F.mse_loss(model(x), y).backward()\n    optimizer.step()").replace(
        "skipped = 0\n",
        "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter('runs')\n"
        "handle = model.register_forward_hook(writer.hook)\nmodel.register_forward_hook(writer.hook)\n",
    )
    lines = converted(text).splitlines()
    assert "model.register_forward_hook(writer.hook)" in lines, "not indented under a guard"


def test_several_layers_under_a_test_of_rows_are_planned_in_time() -> None:
    """The values of a variable that is bound again and again are asked for once each."""
    layers = "".join(f"        x = torch.relu(self.l{n}(x))\n" for n in range(28))
    made = "".join(f"        self.l{n} = torch.nn.Linear(2, 2)\n" for n in range(28))
    text = f"""
import torch
from torch.utils.data import DataLoader

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
{made}
    def forward(self, x):
{layers}
        if x.shape[0] > 1:
            x = x + torch.randn(2).cuda()
        return x

model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x in DataLoader(torch.randn(8, 2), batch_size=2):
    optimizer.zero_grad()
    model(x.cuda()).mean().backward()
    optimizer.step()
"""
    assert conversion(text).trains
