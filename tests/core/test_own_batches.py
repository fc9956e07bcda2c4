"""Batches that the script puts together itself: whether each process draws its own, or all are at the same place."""

from __future__ import annotations

import pytest

from .converting import notes

SCRIPT = """
import numpy as np
import torch
from torch import nn

class Rows:
    def __init__(self):
        self.x = np.random.rand(64, 4).astype("float32")
        self.at = 0
        self.order = np.arange(64)

    def next_batch(self, size=8):
        start = self.at
        self.at += size
        if self.at > len(self.x):
            self.at, start = size, 0
        return torch.tensor(self.x[start:self.at])

rows = Rows()
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(100):
    batch = rows.next_batch()
    batch = batch + np.random.uniform(-1, 1)
    loss = model(batch).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OWN = [
    (
        "return torch.tensor(self.x[start:self.at])",
        "return torch.tensor(np.random.permutation(self.x)[:size])",
    ),
    ("self.at, start = size, 0", "self.at, start = size, 0\n            np.random.shuffle(self.x)"),
    ("self.at += size", "self.at = np.random.randint(len(self.x) - size)"),
]


def test_a_place_that_moves_on_is_the_same_for_all() -> None:
    """What is drawn beside it, to shift a picture, gives no process data of its own."""
    assert notes(SCRIPT, "CT902")


@pytest.mark.parametrize(("line", "drawn"), OWN)
def test_an_order_that_is_drawn_is_each_process_s_own(line: str, drawn: str) -> None:
    assert line in SCRIPT
    assert not notes(SCRIPT.replace(line, drawn), "CT902")


@pytest.mark.parametrize(("given", "is_own"), [("noise=0.1", True), ("random_state=0", False)])
def test_rows_that_a_library_makes_up_are_each_process_s_own(given: str, is_own: bool) -> None:
    text = SCRIPT.replace("rows.next_batch()", f"torch.tensor(make_moons(8, {given})[0])")
    text = text.replace("    batch = batch + np.random.uniform(-1, 1)\n", "")
    text = f"from sklearn.datasets import make_moons\n{text}"
    assert bool(notes(text, "CT902")) is not is_own
