"""Negative samples drawn by weight, so many for each row of the batch: rows that no loader has placed."""

from __future__ import annotations

import pytest

from .support import check_invariants, migrate

SCRIPT = """\
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pairs = torch.randint(0, 20, (64, 2))
weights = torch.bincount(pairs[:, 1], minlength=20).float() ** 0.75
loader = DataLoader(TensorDataset(pairs[:, 0], pairs[:, 1]), batch_size=8, shuffle=True)
model = nn.Embedding(20, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for center, context in loader:
    negatives = DRAW
    MOVE
    u, v, n = model(center), model(context), model(negatives)
    loss = -(F.logsigmoid((u * v).sum(1)) + F.logsigmoid(-(n @ u.unsqueeze(2)).squeeze(2)).sum(1)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
"""
TOGETHER = "center, context, negatives = center.to(device), context.to(device), negatives.to(device)"
APART = "center, context = center.to(device), context.to(device)\n    negatives = negatives.to(device)"


@pytest.mark.parametrize(
    "draw",
    [
        "torch.multinomial(weights, center.size(0) * 3, replacement=True).view(center.size(0), -1)",
        "torch.multinomial(weights, len(center) * 3, True).view(len(center), 3)",
    ],
)
@pytest.mark.parametrize("move", [TOGETHER, APART])
def test_negatives_keep_their_move_and_are_noted_as_drawn_alike(draw: str, move: str) -> None:
    text = SCRIPT.replace("DRAW", draw).replace("MOVE", move)
    result = migrate(text)
    assert result.changed, result.findings
    assert "negatives.to(device)" in result.after or "negatives.to(accelerator.device)" in result.after
    assert "CT904" in {f.rule for f in result.findings}
    check_invariants(text, result)
