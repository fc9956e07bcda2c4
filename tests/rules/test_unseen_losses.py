"""CT602: trained losses whose batches no loader could be found for."""

from __future__ import annotations

from .support import check_invariants, migrate

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(60, 8), torch.zeros(60).long()), batch_size=10, shuffle=True)
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2)


class Endless:
    def __init__(self, batches):
        self.batches = batches
        self.stream = iter(batches)

    def __next__(self):
        try:
            inputs, labels = next(self.stream)
        except StopIteration:
            self.stream = iter(self.batches)
            inputs, labels, *_ = next(self.stream)
        return inputs, labels

    def get(self):
        return next(self)


def step(batches):
    x, y = batches.get()
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()


def find(batches):
    losses, best = [], float("inf")
    for i in range(10):
        loss = step(batches)
        best = min(loss, best)
        losses.append(loss)
        if loss > 5 * best:
            break
    return losses


print(find(Endless(loader)))
"""


def test_a_loss_that_ends_the_search_is_that_of_all_processes() -> None:
    result = migrate(SCRIPT)
    assert 'return accelerator.reduce(loss, reduction="mean").item()' in result.after
    check_invariants(SCRIPT, result)


def test_one_that_decides_nothing_stays() -> None:
    before = SCRIPT.replace("        if loss > 5 * best:\n            break\n", "")
    before = before.replace("        best = min(loss, best)\n", "")
    result = migrate(before)
    assert "    return loss.item()" in result.after
    check_invariants(before, result)


def test_another_number_of_that_name_stays() -> None:
    before = SCRIPT.replace("    return loss.item()", "    loss = y.float().mean()\n    return loss.item()")
    assert "reduce(" not in migrate(before).after
