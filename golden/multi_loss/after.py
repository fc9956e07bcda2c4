# One trunk, three tasks: which digit, odd or even, how much ink.
from collections import defaultdict

import torch
import torch.nn as nn
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


class MultiTaskNet(nn.Module):
    def __init__(self, hidden=40):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(64, hidden), nn.ELU(), nn.Linear(hidden, hidden), nn.ELU())
        self.heads = nn.ModuleDict({
            "digit": nn.Linear(hidden, 10),
            "parity": nn.Linear(hidden, 1),
            "ink": nn.Linear(hidden, 1),
        })

    def forward(self, x):
        h = self.trunk(x)
        return {name: head(h) for name, head in self.heads.items()}


class MultiTaskLoss(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = weights
        self.ce = nn.CrossEntropyLoss()
        self.bce = nn.BCEWithLogitsLoss()
        self.mse = nn.MSELoss()

    def forward(self, out, targets):
        losses = {
            "digit": self.ce(out["digit"], targets["digit"]),
            "parity": self.bce(out["parity"].squeeze(1), targets["parity"]),
            "ink": self.mse(out["ink"].squeeze(1), targets["ink"]),
        }
        losses["total"] = sum(self.weights[k] * v for k, v in losses.items())
        return losses


def get_dataset():
    digits = load_digits()
    x = torch.from_numpy(digits.data).float() / 16
    digit = torch.from_numpy(digits.target)
    parity = (digit % 2).float()
    ink = x.mean(dim=1)
    return TensorDataset(x, digit, parity, ink)


def unpack(batch, device):
    x, digit, parity, ink = [t.to(device) for t in batch]
    return x, {"digit": digit, "parity": parity, "ink": ink}


def run():
    accelerator = Accelerator()
    torch.manual_seed(31)
    device = accelerator.device
    dataset = get_dataset()
    train_loader = DataLoader(torch.utils.data.Subset(dataset, range(0, 189)), batch_size=50, shuffle=True)
    val_loader = DataLoader(torch.utils.data.Subset(dataset, range(189, 336)), batch_size=32)

    model = MultiTaskNet().to(device)
    criterion = MultiTaskLoss({"digit": 1.0, "parity": 0.5, "ink": 2.0})
    # the heads learn faster than the trunk
    optimizer = torch.optim.SGD([
        {"params": model.trunk.parameters(), "lr": 0.1},
        {"params": model.heads.parameters(), "lr": 0.2},
    ], momentum=0.9)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[1], gamma=0.5)

    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    val_loader = accelerator.prepare_evaluation(val_loader)
    for epoch in range(2):
        model.train()
        sums = defaultdict(float)
        for batch in train_loader:
            x, targets = unpack(batch, device)
            losses = criterion(model(x), targets)
            optimizer.zero_grad()
            accelerator.backward(losses["total"])
            optimizer.step()
            for k, v in losses.items():
                sums[k] += v.item()
        scheduler.step()
        accelerator.print("epoch", epoch, "train", " ".join(f"{k}={v / len(train_loader):.4f}" for k, v in sums.items()))

        model.eval()
        sums = defaultdict(float)
        hits = {"digit": 0, "parity": 0}
        n = 0
        with torch.no_grad():
            for batch in val_loader:
                x, targets = unpack(batch, device)
                out = model(x)
                losses = criterion(out, targets)
                for k, v in losses.items():
                    sums[k] += v.item() * x.shape[0]
                hits["digit"] += (out["digit"].argmax(1) == targets["digit"]).sum().item()
                hits["parity"] += ((out["parity"].squeeze(1) > 0) == (targets["parity"] > 0.5)).sum().item()
                n += x.shape[0]
            sums, hits, n = accelerator.merge(val_loader, sums, hits, n)
        accelerator.print("epoch", epoch, "val  ", " ".join(f"{k}={v / n:.4f}" for k, v in sums.items()),
                          "acc digit=%.4f parity=%.4f" % (hits["digit"] / n, hits["parity"] / n))


if __name__ == "__main__":
    run()
