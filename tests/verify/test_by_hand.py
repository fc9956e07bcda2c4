"""Conversions that are not ours: right ones are proven, and mistakes in them are called by their names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.verify_scripts import changed, run, verdicts

PLAIN = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
rows = torch.randn(200, 8)
labels = (rows.sum(1) > 0).long()
train_set = TensorDataset(rows[:128], labels[:128])
train_loader = DataLoader(train_set, batch_size=8, shuffle=True)
test_loader = DataLoader(TensorDataset(rows[128:], labels[128:]), batch_size=9)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for epoch in range(3):
    model.train()
    for x, y in train_loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = torch.zeros(())
    with torch.no_grad():
        for x, y in test_loader:
            correct += (model(x).argmax(1) == y).sum()
    print(f"epoch {epoch}: correct {int(correct)}")
"""
BY_HAND = changed(
    PLAIN,
    ("import torch\n", "import torch\nimport torch.distributed as dist\n"),
    ("torch.manual_seed", "dist.init_process_group('gloo')\nrank, world = dist.get_rank(), dist.get_world_size()\ntorch.manual_seed"),
    ("train_loader = ", "sampler = torch.utils.data.DistributedSampler(train_set)\ntrain_loader = "),
    ("shuffle=True", "sampler=sampler"),
    ("rows[128:], labels[128:]", "rows[128 + rank :: world], labels[128 + rank :: world]"),
    ("optimizer = ", "model = nn.parallel.DistributedDataParallel(model)\noptimizer = "),
    ("for epoch in range(3):\n", "if rank:\n    torch.manual_seed(rank)\nfor epoch in range(3):\n    sampler.set_epoch(epoch)\n"),
    ("    print(", "    dist.all_reduce(correct)\n    if rank == 0: print("),
)  # fmt: skip
# Text and replacement, and the cause that verify must name. The golden corpus has those in conversions for the
# runtime (`test_mutations.py`).
PLANTED = {
    "loader-not-prepared": ("sampler=sampler", "shuffle=True"),
    "not-averaged": ("cross_entropy(model(x)", "cross_entropy(model.module(x)"),
    "evaluation-counted-twice": ("128 + rank :: world", "128:"),
    "drawn-alike": ("if rank:\n", "if False:\n"),
}


@pytest.mark.parametrize("rule", PLANTED)
def test_a_planted_mistake_is_named(rule: str, tmp_path: Path) -> None:
    report = run(tmp_path, BY_HAND.replace(*PLANTED[rule]), PLAIN, default_launch=True)
    assert not report.ok
    assert next(run.cause.rule for run in report.runs if run.cause is not None) == rule, report.runs


def test_a_right_conversion_is_equal(tmp_path: Path) -> None:
    report = run(tmp_path, BY_HAND, PLAIN, default_launch=True)
    assert verdicts(report) == ["identical", "equal"], report.runs
    assert report.runs[1].launch == "torchrun --nproc-per-node 2 after.py"
    assert not report.checks  # they belong to the bundled runtime
