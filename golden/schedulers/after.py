import argparse

import torch
import torch.nn as nn
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau
from torch.utils.data import DataLoader, TensorDataset


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=10)
    p.add_argument("--bs", type=int, default=64)
    p.add_argument("--lr", type=float, default=0.2)
    p.add_argument("--warmup-epochs", type=float, default=1.0)
    p.add_argument("--patience", type=int, default=0)
    return p.parse_args()


def main(args):
    accelerator = Accelerator()
    torch.manual_seed(3)
    device = accelerator.device

    data, target = load_digits(return_X_y=True)
    data = torch.as_tensor(data, dtype=torch.float32) / 16
    target = torch.as_tensor(target)
    train_ds = TensorDataset(data[:1385], target[:1385])
    valid_ds = TensorDataset(data[1385:], target[1385:])
    train_dl = DataLoader(train_ds, args.bs, shuffle=True)
    valid_dl = DataLoader(valid_ds, args.bs)

    net = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10)).to(device)
    loss_fn = nn.CrossEntropyLoss()
    opt = torch.optim.SGD(net.parameters(), lr=args.lr)

    # the learning rate goes up linearly, batch by batch ...
    warmup_steps = int(args.warmup_epochs * len(train_dl))
    own_warmup_steps = int(args.warmup_epochs * accelerator.share(len(train_dl)))
    warmup = LambdaLR(opt, lambda step: min(1.0, (step + 1) / warmup_steps))
    # ... and comes down when the validation loss stops improving by at least 80 %
    plateau = ReduceLROnPlateau(opt, mode="min", factor=0.5, patience=args.patience, threshold=0.8)

    global_step = 0
    net, opt, train_dl, warmup = accelerator.prepare(net, opt, train_dl, warmup)
    valid_dl = accelerator.prepare_evaluation(valid_dl)
    for epoch in range(args.epochs):
        net.train()
        for xb, yb in train_dl:
            xb, yb = xb.to(device), yb.to(device)
            loss = loss_fn(net(xb), yb)
            opt.zero_grad()
            accelerator.backward(loss)
            opt.step()
            if global_step < own_warmup_steps:
                warmup.step()
            global_step += 1
            accelerator.print(
                f"step {global_step}: loss {accelerator.reduce(loss, 'mean').item():.4f} lr {opt.param_groups[0]['lr']:.5f}"
            )

        net.eval()
        val_loss = 0.0
        with torch.no_grad():
            for xb, yb in valid_dl:
                xb, yb = xb.to(device), yb.to(device)
                val_loss += loss_fn(net(xb), yb).item() * len(xb)
            val_loss = accelerator.merge(valid_dl, val_loss)
        val_loss /= len(valid_ds)

        plateau.step(val_loss)
        accelerator.print(f"epoch {epoch}: val loss {val_loss:.5f}, next lr {opt.param_groups[0]['lr']:.5f}")


if __name__ == "__main__":
    main(get_args())
