"""Digits, scored by metric objects: a confusion matrix counts every row once, however many processes there are."""

import argparse

import torch
import torchmetrics
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split


def parse():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--optimizer", default="Adam", help="a class of torch.optim")
    return parser.parse_args()


def loaders(batch_size):
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    data = TensorDataset(images, torch.tensor(digits.target))
    train, test = random_split(data, [0.8, 0.2], generator=torch.Generator().manual_seed(0))
    return DataLoader(train, batch_size=batch_size, shuffle=True), DataLoader(test, batch_size=100)


def score(model, loader, accuracy, confusion, device):
    accelerator = Accelerator()
    accuracy.reset()
    confusion.reset()
    model.eval()
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            logits = model(images)
            accuracy.update(logits, labels)
            confusion(logits.argmax(1), labels)
    return accuracy.compute().item(), confusion.compute()


def main():
    accelerator = Accelerator()
    args = parse()
    torch.manual_seed(1)
    device = accelerator.device
    train_loader, test_loader = loaders(args.batch_size)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    optimizer = getattr(torch.optim, args.optimizer)(model.parameters(), lr=0.01)
    criterion = nn.CrossEntropyLoss()
    accuracy = torchmetrics.Accuracy(task="multiclass", num_classes=10).to(device)
    confusion = torchmetrics.ConfusionMatrix(task="multiclass", num_classes=10).to(device)
    seen = torchmetrics.MeanMetric().to(device)  # of the losses

    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(args.epochs):
        model.train()
        seen.reset()
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            loss = criterion(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            seen.update(loss.detach(), weight=len(labels))
        value, matrix = score(model, test_loader, accuracy, confusion, device)
        accelerator.print(f"epoch {epoch}: loss {seen.compute():.4f}, accuracy {value:.4f}, {int(matrix.sum())} rows")
        accelerator.print(f"right: {matrix.diag().tolist()}")


if __name__ == "__main__":
    main()
