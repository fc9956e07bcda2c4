"""Several labels per image: even, prime, more than four, has a loop. Validation inside the training function."""
import argparse
import math
import os
import sys

import numpy as np
import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, confusion_matrix, roc_auc_score
from torch import nn
from torch.utils.data import DataLoader, Dataset

LABELS = {
    "even": {0, 2, 4, 6, 8},
    "prime": {2, 3, 5, 7},
    "large": {5, 6, 7, 8, 9},
    "loop": {0, 6, 8, 9},
}


class MultiLabelDigits(Dataset):
    def __init__(self, indices):
        digits = load_digits()
        self.x = digits.data[indices].astype(np.float32) / 16
        self.y = np.array([[d in members for members in LABELS.values()] for d in digits.target[indices]], np.float32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


def validate(model, loader, device):
    """Loss, and metrics that need the scores of all images at once."""
    accelerator = Accelerator()
    model.eval()
    scores, labels = [], []
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for x, y in loader:
            x = x.to(device)
            logits = model(x)
            scores.append(torch.sigmoid(logits).cpu().numpy())
            labels.append(y.cpu().numpy())
        scores, labels = accelerator.merge(loader, scores, labels)
    scores = np.concatenate(scores)
    labels = np.concatenate(labels)
    log_loss = -np.mean(labels * np.log(scores) + (1 - labels) * np.log(1 - scores))
    auc = roc_auc_score(labels, scores, average="macro")
    ap = average_precision_score(labels, scores, average="macro")
    return log_loss, auc, ap, scores, labels


def train_model(model, train_loader, val_loader, args, device):
    accelerator = Accelerator()
    criterion = nn.BCEWithLogitsLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, mode="max", factor=0.3, patience=0)

    best_auc, waited, step = 0.0, 0, 0
    model, optimizer = accelerator.prepare(model, optimizer)
    for epoch in range(args.epochs):
        losses = []
        for x, y in train_loader:
            model.train()
            x, y = x.to(device), y.to(device)
            loss = criterion(model(x), y)

            if not math.isfinite(accelerator.reduce(loss, "mean").item()):
                accelerator.print("bad loss, batch skipped")
                continue

            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            losses.append(loss.item())
            step += 1

            # validation in the middle of an epoch
            if step % args.val_every == 0:
                log_loss, auc, ap, _, _ = validate(model, val_loader, device)
                accelerator.print(f"step {step}: train {np.mean(losses):.4f} val {log_loss:.4f} AUC {auc:.4f} AP {ap:.4f}")
                scheduler.step(auc)
                if auc > best_auc:
                    best_auc, waited = auc, 0
                    accelerator.save(model.state_dict(), os.path.join(args.out, "best.pt"))
                else:
                    waited += 1
                if waited > args.patience:
                    accelerator.print("no progress, stopping")
                    return best_auc
    return best_auc


def main(argv):
    accelerator = Accelerator()
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.3)
    parser.add_argument("--val-every", type=int, default=10)
    parser.add_argument("--patience", type=int, default=3)
    parser.add_argument("--out", default=".")
    args = parser.parse_args(argv)

    torch.manual_seed(71)
    device = accelerator.device
    order = np.random.RandomState(0).permutation(1797)
    train_loader = DataLoader(MultiLabelDigits(order[:1373]), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(MultiLabelDigits(order[1373:]), batch_size=args.batch_size)

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, len(LABELS))).to(device)
    train_loader = accelerator.prepare(train_loader)
    best = train_model(model, train_loader, val_loader, args, device)
    accelerator.print(f"best AUC {best:.4f}")

    model.load_state_dict(torch.load(os.path.join(args.out, "best.pt"), map_location=device))
    _, _, _, scores, labels = validate(model, val_loader, device)
    for k, name in enumerate(LABELS):
        tn, fp, fn, tp = confusion_matrix(labels[:, k], scores[:, k] > 0.5).ravel().tolist()
        accelerator.print(f"{name:6s} true {tp + tn:3d} false {fp + fn:3d}")


if __name__ == "__main__":
    main(sys.argv[1:])
