"""`tqdm.auto` begins two passes over what it is given and uses one: a script that has it is verified like another."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.verify_scripts import after, before, run, verdicts

SCRIPT = """
import numpy as np, torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm
{start}
torch.manual_seed(1); np.random.seed(1)
class Noisy(Dataset):
    def __init__(self, rows):
        self.rows, self.labels = torch.randn(rows, 6), torch.arange(rows) % 3
    def __len__(self):
        return len(self.labels)
    def __getitem__(self, index):
        return self.rows[index] + 0.1 * torch.randn(6) * np.random.rand(), self.labels[index]
model = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Dropout(0.3), torch.nn.Linear(12, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train, valid = DataLoader(Noisy(40), batch_size=8, shuffle=True), DataLoader(Noisy(12), batch_size=4)
{prepare}
for epoch in tqdm(range(2)):
    model.train()
    bar = tqdm(enumerate(train) if epoch else train, total=len(train))
    for number, batch in enumerate(bar):
        x, y = batch[1] if epoch else batch
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(); {backward}; optimizer.step()
        if number == 2 and {broken_off}:
            break
    model.eval()
    hits = 0
    with torch.no_grad():
        for x, y in tqdm(valid, leave=False):
            hits += {gathered}.sum().item()
    {say}("hits", hits)
"""


@pytest.mark.parametrize("broken_off", [True, False], ids=["broken-off", "to-the-end"])
def test_two_iterators_over_one_loader(tmp_path: Path, broken_off: bool) -> None:
    hits, names = "(model(x).argmax(1) == y)", "model, optimizer, train, valid"
    plain = before(SCRIPT, broken_off=broken_off, gathered=hits)
    gathered = f"accelerator.gather_for_metrics({hits})"
    converted = after(SCRIPT, names, broken_off=broken_off, gathered=gathered)
    report = run(tmp_path, converted, plain, default_launch=True)
    assert verdicts(report) == ["identical", "equal", "agree"], report
    held = {check.kind for check in report.checks if check.status == "held"}
    assert {"rows", "loader", "mean", "module"} <= held
    assert all(check.status == "held" for check in report.checks), report.checks
