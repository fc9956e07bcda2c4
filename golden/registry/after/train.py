"""Everything is named in config.yaml: what is trained, by what, and on what."""

import sys

import nets
import torch
import yaml
from crosstrain import Accelerator
from registry import build
from sklearn.datasets import load_digits
from torch import nn
from torch.optim import lr_scheduler
from torch.utils import data


def digits():
    bunch = load_digits()
    x = torch.tensor(bunch.data / 16, dtype=torch.float32)
    y = torch.tensor(bunch.target)
    return data.TensorDataset(x[:1500], y[:1500]), data.TensorDataset(x[1500:], y[1500:])


def test(model, criterion, loader, device):
    """Loss and accuracy on held-out data."""
    accelerator = Accelerator()
    model.eval()
    total, hits, seen = 0.0, 0, 0
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for inputs, targets in loader:
            inputs, targets = inputs.to(device), targets.to(device)
            outputs = model(inputs)
            total += criterion(outputs, targets).item() * targets.size(0)
            hits += (outputs.argmax(dim=1) == targets).sum().item()
            seen += targets.size(0)
        total, hits, seen = accelerator.merge(loader, total, hits, seen)
    return total / seen, hits / seen


def main(path):
    accelerator = Accelerator()
    with open(path) as file:
        config = yaml.safe_load(file)
    torch.manual_seed(config["seed"])
    device = accelerator.device

    train_set, test_set = digits()
    train_loader = build(data, config["train_loader"], train_set)
    test_loader = build(data, config["test_loader"], test_set)

    model = build(nets, config["model"]).to(device)
    criterion = build(nn, config["loss"])
    optimizer = build(torch.optim, config["optimizer"], model.parameters())
    scheduler = build(lr_scheduler, config["scheduler"], optimizer)

    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(config["epochs"]):
        model.train()
        for step, (inputs, targets) in enumerate(train_loader):
            inputs, targets = inputs.to(device), targets.to(device)
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
        scheduler.step()  # halves the learning rate

        loss, accuracy = test(model, criterion, test_loader, device)
        accelerator.print(f"epoch {epoch}: test loss {loss:.4f}, accuracy {accuracy:.2%}")

    accelerator.save(model.state_dict(), "model.pt")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "config.yaml")
