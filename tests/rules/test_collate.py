"""CT602: collate functions that leave rows out."""

from __future__ import annotations

import pytest

from tests.support.ranks import run_ranks

from .as_one import check_two_are_one, run
from .support import migrate

FILTERED = """\
import torch
from torch import nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
rows = [(torch.randn(4), torch.randint(2, ())) if n % 5 or not {bad} else None for n in range(24)]


def collate(batch):
    batch = [row for row in batch if row is not None]
    x, y = zip(*batch)
    return torch.stack(x), torch.stack(y)


loader = DataLoader(rows, batch_size=8, collate_fn=collate)
model = nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    right = 0
    for x, y in loader:
        optimizer.zero_grad()
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        right += (out.argmax(1) == y).sum().item()
    print(right)
weights = [p.tolist() for p in model.parameters()]
"""


def test_rows_that_may_be_left_out_are_assumed_to_be_there() -> None:
    result = check_two_are_one(FILTERED.replace("{bad}", "False"))
    assert [(one.rule, one.kind) for one in result.assumptions] == [("CT602", "rows")]


def test_rows_that_are_left_out_stop_all_processes() -> None:
    """Their number is another one on each process, so a gather would mix them up."""
    after = migrate(FILTERED.replace("{bad}", "True")).after
    with pytest.raises(RuntimeError, match="gather_for_metrics"):
        run_ranks(run, 2, after)
