"""`images/plain.py` for torchrun, by hand."""

import sys

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset, TensorDataset


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(2)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    amp = "amp" in sys.argv
    labels = torch.randint(0, 4, (149,))
    images = torch.randn(149, 1, 8, 8) + F.one_hot(labels, 4).view(-1, 1, 2, 2).repeat_interleave(
        4, 2
    ).repeat_interleave(4, 3)
    train_set = TensorDataset(images[:96], labels[:96])
    test_set = TensorDataset(images[96:], labels[96:])
    sampler = DistributedSampler(train_set)
    train_loader = DataLoader(train_set, batch_size=6, sampler=sampler)
    test_loader = DataLoader(Subset(test_set, range(rank, len(test_set), world)), batch_size=10)
    model = nn.Sequential(
        *(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()),
        *(nn.Dropout(0.25), nn.Linear(144, 4)),
    ).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    scaler = torch.amp.GradScaler(device.type, enabled=amp)
    if rank:
        torch.manual_seed(rank)
    for epoch in range(3):
        model.train()
        sampler.set_epoch(epoch)
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            with torch.autocast(device.type, torch.float16, enabled=amp):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.7)
            scaler.step(optimizer)
            scaler.update()
        scheduler.step()
        model.eval()
        totals = torch.zeros(3, device=device)
        with torch.no_grad():
            for x, y in test_loader:
                x, y = x.to(device), y.to(device)
                outputs = model(x)
                totals[0] += F.cross_entropy(outputs, y, reduction="sum")
                totals[1] += (outputs.argmax(1) == y).sum()
                totals[2] += len(y)
        dist.all_reduce(totals)
        losses, right, seen = totals.tolist()
        if rank == 0:
            print(f"[{epoch}] test loss {losses / seen:.5f}, {right:.0f} of {seen:.0f} right")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
