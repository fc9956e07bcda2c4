"""Digits, upper and lower half: a network with a second head half way, each head's loss stored under its name."""

import argparse

import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class TwoHeads(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.lower = nn.Sequential(nn.Linear(64, width), nn.ReLU())
        self.upper = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.aux = nn.Linear(width, 10)
        self.out = nn.Linear(width, 10)

    def forward(self, x):
        half = self.lower(x)
        return {"out": self.out(self.upper(half)), "aux": self.aux(half)}


def criterion(outputs, labels):
    losses = {}
    for name, logits in outputs.items():
        losses[name] = F.cross_entropy(logits, labels)
    if len(losses) == 1:
        return losses["out"]
    return losses["out"] + 0.4 * losses["aux"]


def train_one_epoch(model, criterion, optimizer, loader, device, epoch):
    accelerator = Accelerator()
    model.train()
    hits, rows, total = 0, 0, 0.0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        outputs = model(images)
        loss = criterion(outputs, labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        hits += (outputs["out"].argmax(1) == labels).sum().item()
        rows += labels.size(0)
        total += loss.item()
    hits, rows = accelerator.reduce((hits, rows), "sum")
    total = accelerator.reduce(total, "mean")
    accelerator.print(f"epoch {epoch}: loss {total / len(loader):.4f}, right {hits} of {rows}")


def main():
    accelerator = Accelerator()
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    args = parser.parse_args()
    torch.manual_seed(5)
    device = accelerator.device
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    loader = DataLoader(TensorDataset(images[:1024], labels[:1024]), batch_size=args.batch_size, shuffle=True)
    model = TwoHeads(48).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(args.epochs):
        train_one_epoch(model, criterion, optimizer, loader, device, epoch)


if __name__ == "__main__":
    main()
