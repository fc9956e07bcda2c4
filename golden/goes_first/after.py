"""Digits on one device, or on several by `python -m torch.distributed.launch`: one process prepares what all of them read."""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from crosstrain import Accelerator, PartialState
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from tqdm import tqdm


def features(args):
    if args.local_rank > 0:
        dist.barrier()  # wait for the features
    if not os.path.exists("features.pt"):
        digits = load_digits()
        x = torch.tensor(digits.data, dtype=torch.float32) / 16
        torch.save((x, torch.tensor(digits.target)), "features.pt")
    if args.local_rank == 0:
        dist.barrier()  # they are there
    return TensorDataset(*torch.load("features.pt"))


def fit(args, model, rows):
    accelerator = Accelerator()
    args.batch = args.batch_per_device * max(args.devices, 1)
    sampler = RandomSampler(rows) if args.local_rank == -1 else DistributedSampler(rows)
    loader = DataLoader(rows, args.batch, sampler=sampler, drop_last=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.98**step)
    if args.devices > 1:
        model = accelerator.prepare(model)
    if args.local_rank != -1:
        model = accelerator.prepare(model)

    step, total = 0, 0.0
    optimizer = accelerator.prepare(optimizer)
    for epoch in range(args.epochs):
        if args.local_rank != -1:
            sampler.set_epoch(epoch)
        for number, (x, y) in enumerate(tqdm(loader, disable=args.local_rank > 0)):
            loss = F.cross_entropy(model(x.to(args.device)), y.to(args.device))
            if args.devices > 1:
                loss = loss.mean()  # one loss for each device
            accelerator.backward(loss / args.window)
            total += loss.item()
            if (number + 1) % args.window == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                decay.step()
                optimizer.zero_grad()
                step += 1
    if args.local_rank in (-1, 0):
        inner = model.module if hasattr(model, "module") else model
        torch.save(inner.state_dict(), "digits.pt")
    return step, total / max(step * args.window, 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-per-device", type=int, default=50)
    parser.add_argument("--window", type=int, default=2, help="batches in one step")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--no-cuda", action="store_true")
    parser.add_argument(
        "--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", -1)), help="set by the launcher"
    )
    args = parser.parse_args()

    accelerator = Accelerator(cpu=args.no_cuda)
    if args.local_rank == -1 or args.no_cuda:
        args.device = accelerator.device
        args.devices = 0 if args.no_cuda else int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    else:
        if accelerator.device.type == "cuda":
            torch.cuda.set_device(accelerator.device)
        args.device = accelerator.device
        PartialState(group_of_one=True)
        args.devices = 1

    torch.manual_seed(11)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(args.device)
    step, loss = fit(args, model, features(args))
    print(f"{step} steps, loss {loss:.4f}")


if __name__ == "__main__":
    main()
