"""What a look at scripts that the tool had not met has found: each kind with what stays as it was."""

from __future__ import annotations

import pytest

from .converting import converted

BUFFER = """import argparse
import torch
from torch.utils.data import DataLoader

args = argparse.ArgumentParser().parse_args()
setattr(args, "gpu", not args.cpu)
if args.gpu and args.reserve > 0:
    {buffer} = torch.randn(int(args.reserve)).cuda()
    {end}

class Trainer:
    def __init__(self, args):
        self.args = args
        self.device = torch.device("cuda") if self.args.gpu and torch.cuda.is_available() else torch.device("cpu")

    def train(self):
        model = torch.nn.Linear(4, 2).to(self.device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader([], 8):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x.to(self.device)), y.to(self.device)).backward()
            optimizer.step()

Trainer(args).train()
"""


@pytest.mark.parametrize(
    ("end", "made"),
    [
        ("del buffer", "Accelerator(cpu=not args.gpu)"),  # it is thrown away: the class chooses the device
        ("print(buffer.sum())", "Accelerator(cpu=not (args.gpu and args.reserve > 0))"),
    ],
)
def test_memory_that_is_kept_free_chooses_no_device(end: str, made: str) -> None:
    assert f"accelerator = {made}" in converted(BUFFER.format(buffer="buffer", end=end))


COLLATE = """from functools import partial
import torch
from torch.utils.data import DataLoader

def together(batch, scale=1):
    rows, sizes = [], []
    with torch.no_grad():
        for row in batch:
            rows.append(row[0] * scale)
            sizes.append(len(row[0]))
    return torch.stack(rows), torch.tensor(sizes)

{given}
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in loader:
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
{end}
"""


@pytest.mark.parametrize(
    "given",
    [
        "loader = DataLoader([], 8, collate_fn=together)",
        "loader = DataLoader([], 8, collate_fn=partial(together, scale=2))",
        "collate = partial(together, scale=2)\nloader = DataLoader([], 8, collate_fn=collate)",
    ],
)
def test_a_collate_function_evaluates_nothing(given: str) -> None:
    after = converted(COLLATE.format(given=given, end=""))
    assert "prepare_evaluation" not in after
    assert "merge" not in after


def test_the_same_loop_over_batches_is_dealt() -> None:
    after = converted(COLLATE.format(given="loader = DataLoader([], 8)", end="print(together(loader))"))
    assert ".prepare_evaluation(batch)" in after


SHOWN = """import torch
from torch.utils.data import DataLoader

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.linear(x)

    def describe(self):
        lines = []
        lines.append(f"{self.linear.weight.sum()}")
        return lines

    def size(self):
        total = self.linear.weight.sum().item()
        return total

def show(what):
    if type(what) == list:
        torch.save(what, "lines.pt")

def train(model, loader):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

model = Net()
train(model, DataLoader([], 8))
show(model.describe())
"""


def test_a_list_that_a_method_fills_has_no_mean() -> None:
    assert "show(model.describe())" in converted(SHOWN)


MATRICES = """import scipy.sparse as sp
import torch
from scipy.sparse import save_npz
from torch.utils.data import DataLoader

def matrices(path):
    try:
        found = sp.load_npz(path)
    except OSError:
        found = sp.eye(3)
        {save}(path, found)
    return found

weights = matrices("weights.npz")
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in DataLoader([], 8):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
"""


@pytest.mark.parametrize("save", ["sp.save_npz", "save_npz"])
def test_a_sparse_matrix_is_written_by_one_process(save: str) -> None:
    after = converted(MATRICES.format(save=save))
    assert f".is_main_process:\n            {save}(path, found)" in after
    assert "        found = sp.load_npz(path)\n    except" in after
