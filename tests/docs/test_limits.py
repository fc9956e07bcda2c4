"""The page of limits names every script that is refused, and each of them is."""

from __future__ import annotations

import pytest
from crosstrain_migrate.core import refusals
from crosstrain_migrate.core.conversion import convert
from crosstrain_migrate.results import Finding

from .console import ROOT

LIMITS = (ROOT / "docs" / "limits.md").read_text("utf-8")
TRAINS = """
import torch
from torch.utils.data import DataLoader
{imports}
model = torch.nn.Linear(8, 2)
{wrap}
optimizer = torch.optim.{optimizer}(model.parameters(), lr=0.1)
for x, y in DataLoader(data, batch_size=8):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""
LAYER = """
class Layer(torch.nn.Linear):
    def forward(self, x):
        out = super().forward(x)
        torch.distributed.all_reduce(out)
        return out
torch.distributed.init_process_group("gloo")
"""
PLAYS = """
import gym, torch
env, net = gym.make("CartPole-v1"), torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
state, done = env.reset(), False
while not done:
    state, reward, done, info = env.step(net(state).argmax())
    loss = -reward * net(state).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
HOGWILD = "model.share_memory()\nmp.spawn(print, nprocs=2)"
HIDDEN = """
import torch
from timm.utils import NativeScaler
model, scale = torch.nn.Linear(8, 2), NativeScaler()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    scale(torch.nn.functional.cross_entropy(model(x), y), optimizer)
"""
BY_NAME = """
import sys, torch
class Jobs:
    def train(self):
        for x, y in batches:
            loss = model(x).sum()
            loss.backward()
            optimizer.step()
globals()[sys.argv[1]]()
"""
BY_HAND = """
    for p, g in zip(model.parameters(), torch.autograd.grad(loss, model.parameters())):
        p.grad = g"""


def script(imports: str = "", wrap: str = "", optimizer: str = "SGD", backward: str = "") -> str:
    text = TRAINS.format(imports=imports, wrap=wrap, optimizer=optimizer)
    return text.replace("\n    loss.backward()", backward) if backward else text


def refused(text: str) -> list[Finding]:
    done = convert(text, "crosstrain", lambda rule, node: True)
    return list(done.findings) if done.text == text else []


def test_the_script_of_these_tests_is_converted() -> None:
    assert not refused(script())


@pytest.mark.parametrize(
    ("text", "code", "named"),
    [
        (script("import horovod.torch as hvd", "hvd.init()"), "CT901", "Horovod"),
        (script("import deepspeed", "model = deepspeed.initialize(model)"), "CT901", "DeepSpeed"),
        (script("from torch.distributed.fsdp import fully_shard", "fully_shard(model)"), "CT901", "`fsdp`"),
        (script(LAYER, "model = Layer(8, 2)"), "CT901", "layers that communicate"),
        (script("import torch.multiprocessing as mp", HOGWILD), "CT901", "Hogwild"),
        (script(optimizer="LBFGS"), "CT903", "LBFGS"),
        (PLAYS, "CT901", "env.step"),
        (script(backward=BY_HAND), "CT202", "torch.autograd.grad"),
        (HIDDEN, "CT202", "NativeScaler"),
        (BY_NAME, "CT905", "name in a string"),
    ],
)
def test_what_the_page_names_is_left_as_it_is(text: str, code: str, named: str) -> None:
    (found,) = refused(text)
    assert found.rule == code
    (row,) = [line for line in LIMITS.splitlines() if line.startswith("|") and named in line]
    assert code in row


def test_the_page_names_every_framework_that_is_refused() -> None:
    modules = {path.split(".")[-1].removeprefix("_") for path in refusals._NOT_OURS}
    for name in refusals._DISTRIBUTES | modules - {"composable"}:
        assert name.lower() in LIMITS.lower(), name
