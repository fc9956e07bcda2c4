"""A plain script: pictures, a convolution with batch statistics and dropout, a mean loss and counts in its evaluation."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    amp = "amp" in sys.argv
    labels = torch.randint(0, 4, (149,))
    images = torch.randn(149, 1, 8, 8) + F.one_hot(labels, 4).view(-1, 1, 2, 2).repeat_interleave(
        4, 2
    ).repeat_interleave(4, 3)
    train_loader = DataLoader(TensorDataset(images[:96], labels[:96]), batch_size=6, shuffle=True)
    test_loader = DataLoader(TensorDataset(images[96:], labels[96:]), batch_size=10)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
        *(nn.Dropout(0.25), nn.Linear(144, 4)),
    ).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    scaler = torch.amp.GradScaler(device.type, enabled=amp)
    for epoch in range(3):
        model.train()
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            with torch.autocast(device.type, torch.float16, enabled=amp):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.7)
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()
        model.eval()
        losses, right, seen = 0.0, 0, 0
        with torch.no_grad():
            for x, y in test_loader:
                x, y = x.to(device), y.to(device)
                outputs = model(x)
                losses += F.cross_entropy(outputs, y, reduction="sum").item()
                right += (outputs.argmax(1) == y).sum().item()
                seen += len(y)
        print(f"[{epoch}] test loss {losses / seen:.5f}, {right} of {seen} right")


if __name__ == "__main__":
    main()
