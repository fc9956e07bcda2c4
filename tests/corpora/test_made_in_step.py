"""What the count of tensors without a device sees, in scripts of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from .made_in_step import Step, planned

SCRIPT = """import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset



def moved(tensor):
    return tensor.cuda()


{device}
model = nn.Linear(4, 2){to}
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.arange(32) % 2), batch_size=8)
for x, y in loader:
    {step}
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def states(folder: Path, text: str) -> dict[str, str]:
    """What becomes of each tensor."""
    path = folder / "train.py"
    path.write_text(text)
    plan = planned(path)
    return {one.text: one.state for one in Step(*plan).made()} if plan else {}


@pytest.mark.parametrize(
    ("step", "has_device", "found"),
    [
        ("x = x + torch.ones(4)", False, ["placed"]),
        ("x = x.to(device) + torch.ones(4)", True, ["neither"]),
        ("x = x.to(device) + torch.ones(4).to(device)", True, ["placed"]),
        ("mask = torch.ones(4); x = x.to(device) * mask.to(device)", True, ["placed"]),
        ("mask = torch.ones(4).cuda(); x = x.cuda() * mask", True, ["placed"]),
        ("x = x.to(device) + torch.ones(4, device=device)", True, []),
        ("value = float(torch.rand(1))", True, []),
        ("x = x.to(device) + x.new_ones(4)", True, []),
        ("x = x.to(device) * moved(torch.ones(4))", True, ["placed"]),
    ],
)
def test_every_tensor_that_meets_a_batch_is_placed_noted_or_neither(
    tmp_path: Path, step: str, has_device: bool, found: list[str]
) -> None:
    text = SCRIPT if has_device else SCRIPT.replace(".cuda()", "")
    device = 'device = torch.device("cuda")' if has_device else ""
    text = text.format(device=device, to=".to(device)" if has_device else "", step=step)
    assert list(states(tmp_path, text).values()) == found


BRANCHES = """import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--cuda", action="store_true")
args = parser.parse_args()
{chosen}
model = nn.Linear(4, 2)
if {test}:
    model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.arange(32) % 2), batch_size=8)
for x, y in loader:
    if {test}:
        x, y = x.cuda() + torch.ones(4).cuda(), y.cuda()
    else:
        x = x + torch.zeros(4)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("chosen", "test", "found"),
    [
        ("", "args.cuda", "placed"),  # the accelerator is on the CPU there
        ("use_cuda = read(args)", "use_cuda", "placed"),
        ("", "torch.cuda.is_available()", "neither"),  # on another accelerator x is there
    ],
)
def test_what_is_made_where_the_author_has_chosen_the_cpu(
    tmp_path: Path, chosen: str, test: str, found: str
) -> None:
    assert states(tmp_path, BRANCHES.format(chosen=chosen, test=test))["torch.zeros(4)"] == found


def test_a_script_that_is_not_converted_has_no_plan(tmp_path: Path) -> None:
    assert states(tmp_path, "print(1)\n") == {}
