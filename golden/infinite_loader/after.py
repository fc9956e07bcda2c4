"""Training counted in iterations: an endless stream of batches, an evaluation now and then."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def infinite(loader):
    while True:
        for batch in loader:
            yield batch


def top_errors(net, loader, device):
    accelerator = Accelerator()
    net.eval()
    wrong = 0
    loader = accelerator.prepare_evaluation(loader)
    with torch.inference_mode():
        for x, y in loader:
            wrong += (net(x.to(device)).argmax(-1) != y.to(device)).sum().item()
        wrong = accelerator.merge(loader, wrong)
    net.train()
    return wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iters", type=int, default=2000)
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--log-every", type=int, default=20)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.3)
    parser.add_argument("--device", default=None)
    opts = parser.parse_args()

    accelerator = Accelerator(device=opts.device)
    opts.device = accelerator.device.type
    if opts.device is None:
        opts.device = accelerator.device.type
    torch.manual_seed(3407)

    d = load_digits()
    x, y = torch.tensor(d.data / 16).float(), torch.tensor(d.target)
    train_loader = DataLoader(TensorDataset(x[:1350], y[:1350]), batch_size=opts.batch, shuffle=True)
    valid_loader = DataLoader(TensorDataset(x[1350:], y[1350:]), batch_size=opts.batch)

    net = nn.Sequential(nn.Linear(64, 32), nn.Mish(), nn.Linear(32, 10)).to(opts.device)
    optimizer = torch.optim.SGD(net.parameters(), lr=opts.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, opts.iters)

    # look at one batch before we start
    first_x, first_y = next(iter(train_loader))
    accelerator.print("batch:", tuple(first_x.shape), tuple(first_y.shape))

    batches = infinite(accelerator.prepare(train_loader))
    smoothed = None
    net, optimizer = accelerator.prepare(net, optimizer)
    for it in range(1, opts.iters + 1):
        inputs, labels = next(batches)
        inputs, labels = inputs.to(opts.device), labels.to(opts.device)
        loss = F.cross_entropy(net(inputs), labels)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        schedule.step()

        value = loss.item()
        smoothed = value if smoothed is None else 0.9 * smoothed + 0.1 * value
        if it % opts.log_every == 0:
            accelerator.print(f"iter {it}: loss {smoothed:.4f} lr {schedule.get_last_lr()[0]:.4f}")
        if it % opts.eval_every == 0:
            wrong = top_errors(net, valid_loader, opts.device)
            accelerator.print(f"iter {it}: {wrong} of {len(valid_loader.dataset)} wrong")


if __name__ == "__main__":
    main()
