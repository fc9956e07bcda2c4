"""A network that knows the digits 0 to 4 learns 5 to 9: first its head alone, then all of it."""
import argparse
import copy
import os

import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
device = accelerator.device


class Backbone(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 24), nn.ReLU())
        self.fc = nn.Linear(24, classes)

    def forward(self, x):
        return self.fc(self.features(x))

    def freeze(self):
        for p in self.features.parameters():
            p.requires_grad = False

    def unfreeze(self):
        for p in self.features.parameters():
            p.requires_grad = True


def get_loaders(batch_size):
    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    x, y = x[y > 4], y[y > 4] - 5
    train = DataLoader(TensorDataset(x[:700], y[:700]), batch_size=batch_size, shuffle=True)
    val = DataLoader(TensorDataset(x[700:], y[700:]), batch_size=batch_size)
    return train, val


def train_one_epoch(model, loader, criterion, optimizer):
    model.train()
    for x, y in loader:
        x = x.to(device)
        y = y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        accelerator.backward(loss)
        optimizer.step()


def validate(model, loader):
    model.eval()
    correct = 0
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for x, y in loader:
            x = x.to(device)
            y = y.to(device)
            correct += torch.sum(model(x).argmax(1) == y).item()
        correct = accelerator.merge(loader, correct)
    return correct / len(loader.dataset)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--pretrained", default="", help="weights to start from")
    args = parser.parse_args()
    torch.manual_seed(8)

    train_loader, val_loader = get_loaders(50)
    model = Backbone(5)
    if os.path.exists(args.pretrained):
        weights = torch.load(args.pretrained, map_location="cpu")
        del weights["fc.weight"], weights["fc.bias"]  # other classes
        model.load_state_dict(weights, strict=False)
    model = model.to(device)
    criterion = nn.CrossEntropyLoss()

    head_optimizer = optim.SGD(model.fc.parameters(), lr=0.3)
    full_optimizer = optim.SGD([
        {"params": model.features.parameters(), "lr": 0.05},
        {"params": model.fc.parameters()},
    ], lr=0.1, momentum=0.9)

    best_acc = 0.0
    best_weights = copy.deepcopy(model.state_dict())
    model, head_optimizer, full_optimizer, train_loader = accelerator.prepare(
        model, head_optimizer, full_optimizer, train_loader
    )
    for epoch in range(args.epochs):
        if epoch < args.epochs // 2:
            model.freeze()
            train_one_epoch(model, train_loader, criterion, head_optimizer)
        else:
            model.unfreeze()
            train_one_epoch(model, train_loader, criterion, full_optimizer)
        acc = validate(model, val_loader)
        accelerator.print(f"epoch {epoch}: accuracy {acc:.4f}, norm of the head {model.fc.weight.norm().item():.4f}")
        if acc > best_acc:
            best_acc = acc
            best_weights = copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    accelerator.save(model.state_dict(), "finetuned.pt")
    accelerator.print(f"best accuracy {best_acc:.4f}")
