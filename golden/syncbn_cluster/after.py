#!/usr/bin/env python3
"""torchrun --nproc_per_node=4 train.py"""
import argparse
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator, PartialState
from sklearn.datasets import load_digits
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 8, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(8)
        self.fc = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=50, help="of each process")
    parser.add_argument("--resume", type=str, default=None)
    return parser.parse_args()


def main():
    args = parse_args()
    world_size = int(os.environ.get("WORLD_SIZE", 1))
    rank = int(os.environ.get("RANK", 0))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    accelerator = Accelerator()
    if world_size > 1:
        PartialState(group_of_one=True)
    device = accelerator.device
    torch.manual_seed(4)

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    y = torch.tensor(digits.target)
    train_set = TensorDataset(x[:1500], y[:1500])
    test_set = TensorDataset(x[1500:], y[1500:])
    sampler = DistributedSampler(train_set) if world_size > 1 else None
    train_loader = DataLoader(
        train_set, batch_size=args.batch_size, shuffle=(sampler is None), sampler=sampler, drop_last=True
    )
    test_loader = DataLoader(test_set, batch_size=100)

    model = ConvNet().to(device)
    if world_size > 1:
        if torch.cuda.is_available():
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        model = accelerator.prepare(model)
    net = model.module if world_size > 1 else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)

    start = 0
    if args.resume:
        saved = torch.load(args.resume, map_location=device)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["epoch"]

    optimizer = accelerator.prepare(optimizer)
    for epoch in range(start, args.epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        model.train()
        for images, labels in train_loader:
            images, labels = images.to(device), labels.to(device)
            loss = F.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()

        # rank 0 tests and saves
        if rank == 0:
            net.eval()
            hits = 0
            with torch.no_grad():
                for images, labels in test_loader:
                    hits += (net(images.to(device)).argmax(1) == labels.to(device)).sum().item()
            print(f"epoch {epoch}: accuracy {hits / len(test_set):.4f}")
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}, "last.pth")
        if world_size > 1:
            dist.barrier()

    if world_size > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
