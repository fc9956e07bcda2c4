"""Scripts that train on numbered rows, so that a run shows which process trained on what."""

from typing import Any

from tests.support.ranks import run_ranks

from .support import Trap, check, converted

# Rows are numbered: `seen` holds the numbers of each batch that was trained on.
ROWS = """
import numpy as np
from torch.utils.data import TensorDataset
torch.manual_seed(0)
rows = torch.arange(32.0).reshape(32, 1)
targets = torch.zeros(32, 1)
seen = []
def learn(model, optimizer, x, y):
    seen.append(sorted(x.flatten().tolist()))
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MADE = """
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
"""
SO_MANY_STEPS = "while step < 8"


def script_of(trap: Trap) -> str:
    return trap.text.replace("DataLoader\n", "DataLoader\n" + ROWS + MADE, 1)


def numbered(trap: Trap) -> Trap:
    return Trap(trap.name, script_of(trap), trap.lines, trap.absent, trap.says)


def check_lines(trap: Trap) -> None:
    """Asserts that the lines are there, and that what is said of the data is what the trap says."""
    check(numbered(trap))
    said = [one.reason for one in converted(script_of(trap)).findings if one.rule == "CT902"]
    assert said if "same data" in trap.says else not said


def check_shares(trap: Trap) -> None:
    """Asserts that two processes train on the batches of one, each batch once."""
    text = script_of(trap)
    before = trained_on(text)
    first, second = run_ranks(trained_on, 2, converted(text).text)
    assert len(first) == len(second)
    if SO_MANY_STEPS in text:  # each process makes as many
        first, second = first[: len(before) // 2], second[: len(before) // 2]
    assert sorted(first + second) == sorted(before)


def trained_on(text: str) -> Any:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "script.py", "exec"), names)
    return names["seen"]
