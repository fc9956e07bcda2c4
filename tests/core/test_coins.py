"""Draws of a training step: a coin that decides what trains is thrown for all processes, and a seed in the step is said."""

from typing import Any

import pytest

from tests.support.ranks import run_ranks

from .filling import filled
from .support import Trap, cases, check, converted, each_row

MADE = """
import random
import numpy as np
from torch.utils.data import TensorDataset
torch.manual_seed(0)
random.seed(0)
np.random.seed(0)
model, other = nn.Linear(1, 1), nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
second = torch.optim.SGD(other.parameters(), lr=0.001)
loader = DataLoader(TensorDataset(torch.arange(32.0).reshape(32, 1), torch.zeros(32, 1)), batch_size=2)
steps = []
def learn(x, y):
    steps.append("first")
    <step F.mse_loss(model(x), y)>
def learn_other(x, y):
    steps.append("second")
    second.zero_grad()
    F.mse_loss(other(x), y).backward()
    second.step()
"""
SHARED = cases("""
== a coin that a variable holds, in front of steps that are written out
for x, y in loader:
    heads = np.random.rand() < 0.5
    if heads:
        steps.append("first")
        <step F.mse_loss(model(x), y)>
    else:
        steps.append("second")
        second.zero_grad()
        F.mse_loss(other(x), y).backward()
        second.step()
-> with accelerator.common_draws():
-> heads = np.random.rand() < 0.5
-> if heads:
== a coin of a function that is called in each step, thrown only where the first part of the test holds
coin = 3
def step(x, y, mixes=True):
    if mixes and torch.rand(1).item() < 0.5:
        learn(x, y)
    else:
        learn_other(x, y)
for x, y in loader:
    step(x, y)
-> with accelerator.common_draws():
-> common_coin = mixes and torch.rand(1).item() < 0.5
-> if common_coin:
== a coin by which a step is left out
for x, y in loader:
    if random.random() < 0.3:
        continue
    learn(x, y)
-> with accelerator.common_draws():
-> coin = random.random() < 0.3
-> if coin:
""")
OWN = cases("""
== a coin that turns a batch round, or makes the loss another
for x, y in loader:
    if random.random() < 0.5:
        x = -x
    loss = F.mse_loss(model(x), y) if np.random.rand() < 0.5 else F.l1_loss(model(x), y)
    <step loss>
!! common_draws
== a coin before the passes, which is thrown alike
if random.random() < 0.5:
    for x, y in loader:
        learn(x, y)
else:
    for x, y in loader:
        learn_other(x, y)
!! common_draws
== steps that take turns
for number, (x, y) in enumerate(loader):
    if number % 2:
        learn(x, y)
    else:
        learn_other(x, y)
!! common_draws
""")


def script_of(trap: Trap) -> str:
    return filled(trap.text.replace("DataLoader\n", "DataLoader\n" + MADE, 1))


def stepped(text: str) -> Any:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "script.py", "exec"), names)
    return names["steps"]


@pytest.mark.parametrize("trap", [*SHARED, *OWN], ids=lambda trap: trap.name)
def test_a_coin_that_decides_what_trains_is_the_same_on_all_processes(trap: Trap) -> None:
    check(Trap(trap.name, script_of(trap), trap.lines, trap.absent))
    assert not [one for one in converted(script_of(trap)).findings if one.rule == "CT605"]


@pytest.mark.parametrize("trap", SHARED, ids=lambda trap: trap.name)
def test_processes_take_the_same_steps(trap: Trap) -> None:
    after = converted(script_of(trap)).text
    assert stepped(after) == stepped(script_of(trap))
    first, second = run_ranks(stepped, 2, after)
    assert first == second
    assert first


def test_a_coin_in_an_elif_is_said() -> None:
    script = """
        for number, (x, y) in enumerate(loader):
            if number == 0:
                learn(x, y)
            elif random.random() < 0.5:
                learn_other(x, y)
    """
    done = converted(script_of(Trap("", script)))
    assert "common_draws():" not in done.text
    assert [one.remedy for one in done.findings] == ["draw it in `with accelerator.common_draws():`"]


@each_row("""
seed => is_said
torch.manual_seed(number) => True
np.random.seed(7) => True
torch.manual_seed(number + rank) => False
""")
def test_a_seed_that_a_step_sets_is_said(seed: str, is_said: bool) -> None:
    text = (
        "rank = 0\ntorch.manual_seed(3)\nfor number, (x, y) in enumerate(loader):\n    {}\n    learn(x, y)\n"
    )
    done = converted(script_of(Trap("", text.format(seed))))
    assert [one.rule for one in done.findings] == ["CT904"] * is_said
