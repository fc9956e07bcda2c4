"""A name that stands for one optimizer after another: each is prepared with its own model."""

from __future__ import annotations

from .converting import converted

PART = """
model_{n} = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model_{n}.parameters(), lr=0.1)
for x, y in DataLoader([], 8):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model_{n}(x), y).backward()
    optimizer.step()
"""


def test_each_training_prepares_what_it_has_made() -> None:
    text = "import torch\nfrom torch.utils.data import DataLoader\n" + PART.format(n=0) + PART.format(n=1)
    first, _, second = converted(text).partition("model_1 = torch")
    assert "model_0, optimizer = accelerator.prepare(model_0, optimizer)" in first
    assert "model_1, optimizer = accelerator.prepare(model_1, optimizer)" in second
    assert "model_0" not in second
