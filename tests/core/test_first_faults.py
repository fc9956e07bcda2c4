"""Kinds of scripts of which an early look found the conversion wrong, run on one and two processes."""

from __future__ import annotations

from pathlib import Path

from .projects import convert, train, write

ATTENTION = """
import torch
from torch import nn

class Attention(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.query = nn.Linear(size, size).cuda()
        self.scale = torch.sqrt(torch.FloatTensor([size])).cuda()

    def forward(self, x):
        return self.query(x) / self.scale
"""
NET = """
from torch import nn
from attention import Attention

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention(2)
        self.out = nn.Linear(2, 1)

    def forward(self, x):
        return self.out(self.attention(x))
"""
SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset
from net import Net

rows = torch.arange(32.0).reshape(16, 2) / 32
loader = DataLoader(TensorDataset(rows, rows[:, :1]), batch_size=4)
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in loader:
    x, y = x.cuda(), y.cuda()
    loss = torch.nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = model.out.weight.sum().item()
"""


def test_a_layer_two_files_away_that_is_placed_where_it_is_made(tmp_path: Path) -> None:
    folder = write(tmp_path, attention=ATTENTION, net=NET, script=SCRIPT)
    convert(folder, "script")
    assert ".cuda(" not in "".join(one.read_text() for one in folder.glob("*.py"))
    zero, one = train(folder, "script", 2)
    assert zero == one


OWN_GROUP = """
import argparse
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--backend", default="nccl", choices=["nccl", "gloo"])
parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
args = parser.parse_args()
dist.init_process_group(args.backend)
torch.cuda.set_device(args.local_rank)
rows = torch.arange(32.0).reshape(16, 2) / 32
data = TensorDataset(rows, rows[:, :1])
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data))
model = DDP(torch.nn.Linear(2, 1).cuda(), device_ids=[args.local_rank])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for x, y in loader:
    loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
result = args.backend
"""


def test_the_option_that_named_the_backend_is_still_an_option(tmp_path: Path) -> None:
    folder = write(tmp_path, script=OWN_GROUP)
    convert(folder, "script")
    assert train(folder, "script", 2, "--backend", "gloo") == ["gloo", "gloo"]
    assert train(folder, "script", launched=False) == ["nccl"]


THRESHOLD = """
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

rows = torch.arange(32.0).reshape(16, 2) / 32
train = DataLoader(TensorDataset(rows, rows[:, :1]), batch_size=4, shuffle=True)
test = DataLoader(TensorDataset(rows, rows[:, :1]), batch_size=3)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
best = 1e9
for epoch in range(3):
    for x, y in train:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scores = []
    with torch.no_grad():
        for x, y in test:
            scores += (model(x) - y).abs().flatten().tolist()
    threshold = np.percentile(scores, 50)
    if threshold < best:
        best = threshold
        torch.save(model.state_dict(), "best.pt")
    if threshold < 0.1:
        break
result = (len(scores), float(threshold))
"""


def test_a_threshold_is_that_of_all_rows(tmp_path: Path) -> None:
    """The threshold decides what is kept, and when training ends: on every process alike."""
    folder = write(tmp_path, script=THRESHOLD.replace("shuffle=True", "shuffle=False"))
    (before,) = train(folder, "script", launched=False)
    convert(folder, "script")
    assert train(folder, "script", launched=False) == [before]
    zero, one = train(folder, "script", 2)
    assert zero == one
    assert zero[0] == before[0] == 16
    assert (folder / "best.pt").is_file()
