#!/usr/bin/env python
"""Train a small convolutional classifier on the scikit-learn digits."""
import argparse
import os
import random

import numpy as np
import torch
import torch.nn as nn
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch.optim.lr_scheduler import OneCycleLR
from torch.utils.data import DataLoader, Dataset


class DigitsDataset(Dataset):
    """8x8 grey-scale digits as (1, 8, 8) float tensors in [0, 1]."""

    def __init__(self, images, labels):
        self.images = images
        self.labels = labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        image = torch.tensor(self.images[index] / 16.0, dtype=torch.float32).unsqueeze(0)
        return image, int(self.labels[index])


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--clip", type=float, default=0.5, help="largest absolute gradient value")
    parser.add_argument("--out", default="runs/digits", help="where to keep the best model")
    parser.add_argument("--seed", type=int, default=7)
    return parser.parse_args()


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def get_loaders(args):
    digits = load_digits()
    train_x, val_x, train_y, val_y = train_test_split(
        digits.images, digits.target, test_size=347, random_state=args.seed, stratify=digits.target
    )
    train_loader = DataLoader(DigitsDataset(train_x, train_y), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(DigitsDataset(val_x, val_y), batch_size=32)
    return train_loader, val_loader


def build_model(num_classes=10):
    return nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.GELU(),
        nn.Conv2d(16, 16, kernel_size=3, stride=2, padding=1),
        nn.GELU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, num_classes),
    )


@torch.no_grad()
def evaluate(model, loader, criterion, device):
    accelerator = Accelerator()
    model.eval()
    loss_sum, correct, count = 0.0, 0, 0
    loader = accelerator.prepare_evaluation(loader)
    for images, labels in loader:
        images = images.to(device)
        labels = labels.to(device)
        logits = model(images)
        loss_sum += criterion(logits, labels).item() * labels.size(0)
        correct += (logits.argmax(1) == labels).sum().item()
        count += labels.size(0)
    loss_sum, correct, count = accelerator.merge(loader, loss_sum, correct, count)
    return loss_sum / count, correct / count


def main():
    args = parse_args()
    set_seed(args.seed)
    accelerator = Accelerator(device=args.device)
    device = accelerator.device

    if not os.path.exists(args.out):
        os.makedirs(args.out, exist_ok=True)

    train_loader, val_loader = get_loaders(args)
    model = build_model().to(device)
    accelerator.print("parameters:", sum(p.numel() for p in model.parameters()))

    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    total_steps = len(train_loader) * args.epochs
    scheduler = OneCycleLR(optimizer, max_lr=args.lr, total_steps=total_steps)

    best_acc = 0.0
    model, optimizer, train_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, scheduler
    )
    for epoch in range(args.epochs):
        model.train()
        epoch_loss = 0.0
        for images, labels in train_loader:
            images = images.to(device, non_blocking=True)
            labels = labels.to(device, non_blocking=True)

            logits = model(images)
            loss = criterion(logits, labels)

            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_value_(model.parameters(), args.clip)
            optimizer.step()
            scheduler.step()  # every batch

            epoch_loss += loss.item()
        epoch_loss = accelerator.reduce(epoch_loss, "mean")

        val_loss, val_acc = evaluate(model, val_loader, criterion, device)
        accelerator.print(
            f"epoch {epoch + 1}/{args.epochs}  train loss {epoch_loss / len(train_loader):.4f}  "
            f"val loss {val_loss:.4f}  val acc {val_acc:.4f}  lr {scheduler.get_last_lr()[0]:.2e}"
        )

        # keep only the best one
        if val_acc > best_acc:
            best_acc = val_acc
            accelerator.save(model.state_dict(), os.path.join(args.out, "best.pt"))
            accelerator.print("  saved the best model so far")

    accelerator.print(f"best validation accuracy: {best_acc:.4f}")


if __name__ == "__main__":
    main()
