"""Regression without a data loader, converted by hand: each epoch goes through slices of a fresh permutation."""

import argparse

import torch
from crosstrain import Accelerator
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--plain", action="store_true", help="as it was before the conversion")
options = parser.parse_args()

torch.manual_seed(11)
accelerator = None if options.plain else Accelerator()
x = torch.linspace(-3, 3, 336).unsqueeze(1)
y = torch.sin(x) + 0.1 * torch.randn(x.shape)
model = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
if accelerator is not None:
    model, optimizer = accelerator.prepare(model, optimizer)

seen = []
for _ in range(options.epochs):
    permutation = torch.randperm(len(x))
    starts = range(0, len(x), 32)
    for i in starts if accelerator is None else accelerator.prepare(starts):
        rows = permutation[i : i + 32]
        seen.append(rows.tolist())
        loss = nn.functional.mse_loss(model(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward() if accelerator is None else accelerator.backward(loss)
        optimizer.step()
