"""Everything about a run stands in the configuration; `a.b=c` on the command line changes it."""

import sys
from types import SimpleNamespace

import torch
import yaml
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

CONFIG = """
device: cuda
seed: 5
model: {hidden: 40, activation: ReLU}
optimizer: {name: Adam, lr: 0.01}
train: {epochs: 4, batch_size: 75, clip: 5.0}
"""


def to_namespace(tree):
    if isinstance(tree, dict):
        return SimpleNamespace(**{k: to_namespace(v) for k, v in tree.items()})
    return tree


def load_config(overrides):
    tree = yaml.safe_load(CONFIG)
    for override in overrides:
        path, value = override.split("=", 1)
        *parents, key = path.split(".")
        node = tree
        for parent in parents:
            node = node[parent]
        node[key] = yaml.safe_load(value)
    return to_namespace(tree)


def build_model(cfg):
    activation = getattr(nn, cfg.activation)
    return nn.Sequential(nn.Linear(64, cfg.hidden), activation(), nn.Linear(cfg.hidden, 10))


def build_loaders(cfg):
    digits = load_digits()
    x = torch.as_tensor(digits.data).float() / 16
    y = torch.as_tensor(digits.target)
    train_set, test_set = TensorDataset(x[:1500], y[:1500]), TensorDataset(x[1500:], y[1500:])
    return (
        DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True),
        DataLoader(test_set, batch_size=cfg.batch_size),
    )


def run_epoch(model, loader, criterion, optimizer, cfg, device):
    accelerator = Accelerator()
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), max_norm=cfg.clip)
        optimizer.step()


@torch.no_grad()
def evaluate(model, loader, device):
    accelerator = Accelerator()
    model.eval()
    hits = 0
    loader = accelerator.prepare_evaluation(loader)
    for x, y in loader:
        hits += (model(x.to(device)).argmax(dim=1) == y.to(device)).sum().item()
    hits = accelerator.merge(loader, hits)
    return hits / len(loader.dataset)


def main():
    cfg = load_config(sys.argv[1:])
    torch.manual_seed(cfg.seed)
    accelerator = Accelerator(device=cfg.device)
    device = accelerator.device
    train_loader, test_loader = build_loaders(cfg.train)
    model = build_model(cfg.model).to(device)
    optimizer = optim.Adam(model.parameters(), lr=cfg.optimizer.lr)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", patience=1)
    criterion = nn.CrossEntropyLoss()
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(cfg.train.epochs):
        run_epoch(model, train_loader, criterion, optimizer, cfg.train, device)
        accuracy = evaluate(model, test_loader, device)
        scheduler.step(accuracy)  # the plateau is one of the accuracy
        accelerator.print(f"epoch {epoch + 1}/{cfg.train.epochs}: accuracy {accuracy:.4f}")


if __name__ == "__main__":
    main()
