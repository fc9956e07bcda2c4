"""`images/plain.py` for the bundled runtime, by hand."""

import sys

import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    torch.manual_seed(2)
    accelerator = Accelerator(mixed_precision="fp16" if "amp" in sys.argv else "no")
    labels = torch.randint(0, 4, (149,))
    images = torch.randn(149, 1, 8, 8) + F.one_hot(labels, 4).view(-1, 1, 2, 2).repeat_interleave(
        4, 2
    ).repeat_interleave(4, 3)
    train_loader = DataLoader(TensorDataset(images[:96], labels[:96]), batch_size=6, shuffle=True)
    test_loader = DataLoader(TensorDataset(images[96:], labels[96:]), batch_size=10)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
        *(nn.Dropout(0.25), nn.Linear(144, 4)),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    test_loader = accelerator.prepare_evaluation(test_loader)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    for epoch in range(3):
        model.train()
        for x, y in train_loader:
            with accelerator.autocast():
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 0.7)
            optimizer.step()
        scheduler.step()
        model.eval()
        losses, right, seen = 0.0, 0, 0
        with torch.no_grad():
            for x, y in test_loader:
                outputs = model(x)
                losses += F.cross_entropy(outputs, y, reduction="sum").item()
                right += (outputs.argmax(1) == y).sum().item()
                seen += len(y)
        losses, right, seen = accelerator.merge(test_loader, losses, right, seen)
        accelerator.print(f"[{epoch}] test loss {losses / seen:.5f}, {right} of {seen} right")


if __name__ == "__main__":
    main()
