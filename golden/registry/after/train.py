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


def test(model, criterion, loader, accelerator):
    """Loss and accuracy on held-out data."""
    model.eval()
    total, hits, seen = 0.0, 0, 0
    with torch.no_grad():
        for inputs, targets in loader:
            outputs = model(inputs)
            outputs, targets = accelerator.own_rows((outputs, targets))
            if not len(targets):
                continue
            total += criterion(outputs, targets).item() * targets.size(0)
            hits += (outputs.argmax(dim=1) == targets).sum().item()
            seen += targets.size(0)
        total, hits, seen = accelerator.reduce((total, hits, seen), reduction="sum")
    return total / seen, hits / seen


def main(path):
    with open(path) as file:
        config = yaml.safe_load(file)
    torch.manual_seed(config["seed"])
    accelerator = Accelerator(step_scheduler_with_optimizer=False)

    train_set, test_set = digits()
    train_loader = build(data, config["train_loader"], train_set)
    test_loader = build(data, config["test_loader"], test_set)

    model = build(nets, config["model"])
    criterion = build(nn, config["loss"])
    optimizer = build(torch.optim, config["optimizer"], model.parameters())
    scheduler = build(lr_scheduler, config["scheduler"], optimizer)
    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )

    for epoch in range(config["epochs"]):
        model.train()
        for step, (inputs, targets) in enumerate(train_loader):
            optimizer.zero_grad()
            loss = criterion(model(inputs), targets)
            accelerator.backward(loss)
            optimizer.step()
        scheduler.step()  # halves the learning rate

        loss, accuracy = test(model, criterion, test_loader, accelerator)
        accelerator.print(f"epoch {epoch}: test loss {loss:.4f}, accuracy {accuracy:.2%}")

    accelerator.save_model(model, "model.pt")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "config.yaml")
