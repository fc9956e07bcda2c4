"""Whole scripts, each written in another way: what they train and print on two processes is what they did on one."""

from __future__ import annotations

import pytest

from .as_one import check_two_are_one
from .support import unbroken

HEAD = """\
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
points = torch.randn(37, 6)
labels = (points.sum(1) > 0).long()
"""
LEAVE = "\nweights = [p.tolist() for p in model.parameters()]\n"
WAYS = {
    "a number for each output": (
        """\
loader = DataLoader(TensorDataset(points[:24], points[:24, :3] * 2), batch_size=6)
model = nn.Linear(6, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
per_output = torch.zeros(3)
for x, y in loader:
    squared = ((model(x) - y) ** 2).sum(0)
    loss = squared.sum() / x.shape[0]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    per_output += squared.detach()
print(*(per_output / 24).tolist())
""",
        ['per_output += accelerator.reduce(squared.detach(), reduction="sum")\n'],
    ),
    "loaders that a generator makes, and a comprehension goes over": (
        """\
parts = random_split(TensorDataset(points, labels), [24, 13])
train, test = (DataLoader(part, batch_size=6) for part in parts)
model = nn.Linear(6, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in train:
    loss = F.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    hits = [(model(x.to(device)).argmax(1) == y.to(device)).sum().item() for x, y in test]
print(sum(hits), "of", len(parts[1]))
""",
        ["(accelerator.prepare(DataLoader(part, batch_size=6)) for part in parts)"],
    ),
    "a model that trains and evaluates itself": (
        """\
class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(6, 1)

    def forward(self, x):
        return self.net(x).squeeze(-1)

    def fit(self, data, held_out):
        loader = DataLoader(data, batch_size=6)
        optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
        total, error = 0.0, 0.0
        for x, y in loader:
            out = self(x)
            loss = F.mse_loss(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item() * len(x)
            error += (out.detach() - y).abs().sum().item()
        print("loss", total / len(data), "error", error / len(data))
        print("held out", self.evaluate(DataLoader(held_out, batch_size=6)))

    @torch.no_grad()
    def evaluate(self, loader):
        self.eval()
        error = 0.0
        for x, y in loader:
            error += (self(x) - y).abs().sum().item()
        return error / len(loader.dataset)


model = Regressor().to(device)
model.fit(TensorDataset(points[:24], points[:24].sum(1)), TensorDataset(points[24:], points[24:].sum(1)))
""",
        ["accelerator.print(", "accelerator.weighted(loss).item() * "],
    ),
    "an attack in the evaluation": (
        """\
train = DataLoader(TensorDataset(points[:24], labels[:24]), batch_size=6)
test = DataLoader(TensorDataset(points[24:], labels[24:]), batch_size=6)
model = nn.Linear(6, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def attacked(x, y):
    x = x.clone().requires_grad_(True)
    F.cross_entropy(model(x), y).backward()
    return (x + 0.1 * x.grad.sign()).detach()


for x, y in train:
    x, y = x.to(device), y.to(device)
    worse = attacked(x, y)
    optimizer.zero_grad()
    loss = F.cross_entropy(model(worse), y)
    loss.backward()
    optimizer.step()
hits = 0
for x, y in test:
    x, y = x.to(device), y.to(device)
    hits += (model(attacked(x, y)).argmax(1) == y).sum().item()
print("robust", hits / 13)
""",
        ["hits += accelerator.gather_for_metrics(model(attacked(x, y)).argmax(1) == y).sum().item()"],
    ),
    "the terms of a loss by their names": (
        """\
loader = DataLoader(TensorDataset(points[:24], labels[:24], points[:24].sum(1)), batch_size=6)
model = nn.Linear(6, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
sums = {}
for x, y, z in loader:
    x, y, z = x.to(device), y.to(device), z.to(device)
    out = model(x)
    losses = {"class": F.cross_entropy(out[:, :2], y), "value": F.mse_loss(out[:, 2], z)}
    with torch.no_grad():
        losses["size"] = out.abs().mean()
    loss = losses["class"] + 0.5 * losses["value"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for name, value in losses.items():
        sums[name] = sums.get(name, 0.0) + value.item()
print(*[sums[name] / len(loader) for name in ("class", "value", "size")])
""",
        ['accelerator.reduce(value, reduction="mean").item()'],
    ),
    "one function that trains with another loss than it evaluates": (
        """\
def run(model, loader, criterion, optimizer=None):
    training = optimizer is not None
    model.train(training)
    total, hits, rows = 0.0, 0, 0
    with torch.set_grad_enabled(training):
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            out = model(x)
            if training:
                loss = 0.7 * criterion(out, y) + 0.3 * criterion(out, 1 - y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            else:
                loss = criterion(out, y)
            total += loss.item() * y.size(0)
            hits += (out.argmax(1) == y).sum().item()
            rows += y.size(0)
    return total / rows, hits / rows


train = DataLoader(TensorDataset(points[:24], labels[:24]), batch_size=6)
test = DataLoader(TensorDataset(points[24:], labels[24:]), batch_size=6)
model = nn.Linear(6, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
criterion = nn.CrossEntropyLoss()
print(*run(model, train, criterion, optimizer), *run(model, test, criterion))
""",
        ['accelerator.reduce(loss, reduction="mean").item() * accelerator.global_rows(y)'],
    ),
    "factories made with partial": (
        """\
make = partial(DataLoader, batch_size=6)
sgd = partial(torch.optim.SGD, lr=0.1)
criterion = partial(F.cross_entropy, label_smoothing=0.1)
train = make(TensorDataset(points[:24], labels[:24]))
test = make(TensorDataset(points[24:], labels[24:]), batch_size=4)
model = nn.Linear(6, 2).to(device)
optimizer = sgd(model.parameters())
total = 0.0
for x, y in train:
    loss = criterion(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item() * len(x)
model.eval()
hits = 0
with torch.no_grad():
    for x, y in test:
        hits += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
print("loss", total / 24, "hits", hits)
""",
        ["accelerator.prepare(model, optimizer, train, test)", ".argmax(1).cpu() == y.cpu()).sum().item()"],
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_two_processes_train_and_print_what_one_did(way: str) -> None:
    code, lines = WAYS[way]
    result = check_two_are_one(HEAD + code + LEAVE)
    for line in lines:
        assert line in unbroken(result.after)
