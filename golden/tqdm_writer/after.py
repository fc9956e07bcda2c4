import argparse
import json
import os
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator, PartialState
from sklearn.datasets import load_digits
from sklearn.metrics import classification_report, f1_score
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm, trange


class ScalarWriter:
    """Appends scalars to a file of JSON lines, with the calls of a SummaryWriter."""

    def __init__(self, log_dir):
        path = pathlib.Path(log_dir)
        path.mkdir(parents=True, exist_ok=True)
        self.file = open(path / "scalars.jsonl" if PartialState().is_main_process else os.devnull, "w")

    def add_scalar(self, tag, value, global_step):
        self.file.write(json.dumps({"tag": tag, "value": value, "step": global_step}) + "\n")

    def close(self):
        self.file.close()


def train(model, loader, optimizer, writer, epoch, device):
    accelerator = Accelerator()
    model.train()
    with tqdm(
        total=len(loader.dataset), desc=f"epoch {epoch}", unit="img",
        disable=not accelerator.is_main_process
    ) as pbar:
        for i, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()

            writer.add_scalar("train/loss", loss.item(), epoch * len(loader) + i)
            pbar.set_postfix(loss=f"{loss.item():.3f}")
            pbar.update(x.shape[0] * accelerator.num_processes)


def predict(model, loader, device):
    accelerator = Accelerator()
    model.eval()
    y_true, y_pred = [], []
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for x, y in tqdm(
            loader, desc="eval", leave=False, total=loader.own_length,
            disable=not accelerator.is_main_process
        ):
            logits = model(x.to(device))
            y_pred += logits.argmax(1).tolist()
            y_true += y.tolist()
        y_pred, y_true = accelerator.merge(loader, y_pred, y_true)
    return y_true, y_pred


def main():
    accelerator = Accelerator()
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--log-dir", default="logs")
    args = parser.parse_args()

    torch.manual_seed(12)
    device = accelerator.device
    writer = ScalarWriter(args.log_dir)

    digits = load_digits()
    x = torch.tensor(digits.data / 16, dtype=torch.float32)
    y = torch.tensor(digits.target)
    train_loader = DataLoader(TensorDataset(x[:1395], y[:1395]), batch_size=args.batch_size, shuffle=True)
    test_loader = DataLoader(TensorDataset(x[1650:], y[1650:]), batch_size=32)

    model = nn.Sequential(nn.Linear(64, 60), nn.LeakyReLU(), nn.Linear(60, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in trange(args.epochs, desc="epochs", disable=not accelerator.is_main_process):
        train(model, train_loader, optimizer, writer, epoch, device)
        y_true, y_pred = predict(model, test_loader, device)
        f1 = f1_score(y_true, y_pred, average="macro", zero_division=0)
        writer.add_scalar("test/f1", f1, epoch)
        if accelerator.is_main_process:
            tqdm.write(f"epoch {epoch}: macro F1 {f1:.4f}")

    accelerator.print(classification_report(y_true, y_pred, zero_division=0))
    writer.close()


if __name__ == "__main__":
    main()
