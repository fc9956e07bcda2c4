"""Batches that the script puts together itself: whether each process draws its own, or all are at the same place."""

from __future__ import annotations

import pytest

from .converting import notes

SCRIPT = """
import numpy as np
import torch
from sklearn.datasets import make_moons
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
    <step loss>
"""
OWN = [
    (
        "return torch.tensor(self.x[start:self.at])",
        "return torch.tensor(np.random.permutation(self.x)[:size])",
    ),
    ("self.at, start = size, 0", "self.at, start = size, 0\n            np.random.shuffle(self.x)"),
    ("batch = rows.next_batch()", "batch = torch.tensor(make_moons(8)[0])"),
    ("self.at += size", "self.at = np.random.randint(len(self.x) - size)"),
]


def test_a_place_that_moves_on_is_the_same_for_all() -> None:
    """What is drawn beside it, to shift a picture, gives no process data of its own."""
    assert notes(SCRIPT, "CT902")
    assert notes(SCRIPT.replace("start = self.at", "start, k = self.at, np.random.randint(3)"), "CT902")


@pytest.mark.parametrize(("line", "drawn"), OWN)
def test_an_order_that_is_drawn_is_each_process_s_own(line: str, drawn: str) -> None:
    assert line in SCRIPT
    assert not notes(SCRIPT.replace(line, drawn), "CT902")
