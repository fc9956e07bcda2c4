#!/usr/bin/env python3
"""torchrun --nproc_per_node=4 train.py"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=50, help="of each process")
    parser.add_argument("--resume", type=str, default=None)
    return parser.parse_args()


def main():
    args = parse_args()
    accelerator = Accelerator()
    device = accelerator.device
    torch.manual_seed(4)

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    train_set = TensorDataset(x[:1500], y[:1500])
    test_set = TensorDataset(x[1500:], y[1500:])
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size, shuffle=True, drop_last=True
    )
    test_loader = DataLoader(test_set, batch_size=100)

    model = ConvNet()
    if accelerator.num_processes > 1 and accelerator.device.type == "cuda":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    model, optimizer, train_loader, test_loader = accelerator.prepare(model, optimizer, train_loader, test_loader)

    start = 0
    if args.resume:
        saved = torch.load(args.resume, map_location=device)
        model.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["epoch"]

    for epoch in range(start, args.epochs):
        model.train()
        for images, labels in train_loader:
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()

        # rank 0 tests and saves
        model.eval()
        hits = 0
        with torch.no_grad():
            for images, labels in test_loader:
                hits += accelerator.gather_for_metrics(model(images).argmax(1) == labels).sum().item()
        accelerator.print(f"epoch {epoch}: accuracy {hits / len(test_set):.4f}")
        accelerator.save(
            {"net": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, "last.pth"
        )


if __name__ == "__main__":
    main()
