"""Regression without a data loader: each epoch goes through slices of a fresh permutation."""
import argparse

import torch
from crosstrain import Accelerator
from torch import nn

parser = argparse.ArgumentParser(description="sine regression")
parser.add_argument("--epochs", default=12, type=int)
parser.add_argument("--batch-size", default=32, type=int)
opt = parser.parse_args()

torch.manual_seed(11)
accelerator = Accelerator()
device = accelerator.device

X = torch.linspace(-3, 3, 512).unsqueeze(1)
Y = torch.sin(X) + 0.1 * torch.randn(X.shape)
X_test = torch.linspace(-3, 3, 100).unsqueeze(1)
Y_test = torch.sin(X_test)

net = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
criterion = nn.MSELoss()

net, optimizer = accelerator.prepare(net, optimizer)
for epoch in range(opt.epochs):
    permutation = torch.randperm(X.size(0))
    for i in accelerator.prepare(range(0, X.size(0), opt.batch_size)):
        indices = permutation[i:i + opt.batch_size]
        batch_x, batch_y = X[indices].to(device), Y[indices].to(device)
        optimizer.zero_grad()
        loss = criterion(net(batch_x), batch_y)
        accelerator.backward(loss)
        optimizer.step()
    with torch.no_grad():
        test = criterion(net(X_test.to(device)), Y_test.to(device))
    accelerator.print(f"{epoch:3d} test {test.item():.5f}")
