"""A classifier that shares its work by itself: a sampler of its own, meters that add up over the processes, print
silenced by rank. Nothing of that has a plain script inside that could be taken out."""

import argparse
import builtins
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from crosstrain import Accelerator, PartialState
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Sampler, TensorDataset


class RepeatedSampler(Sampler):
    """Each process sees every row twice as often as its share, in an order of the epoch's own."""

    def __init__(self, dataset, repetitions=2):
        self.length = len(dataset)
        self.world_size = dist.get_world_size()
        self.rank = dist.get_rank()
        self.repetitions = repetitions
        self.epoch = 0
        self.samples = self.length // self.world_size

    def __iter__(self):
        order = torch.Generator().manual_seed(self.epoch)
        rows = torch.randperm(self.length, generator=order).repeat_interleave(self.repetitions)
        return iter(rows[self.rank :: self.world_size][: self.samples].tolist())

    def __len__(self):
        return self.samples


class Meter:
    """A running mean that adds up over the processes when it is asked to."""

    def __init__(self):
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    def synchronize(self):
        if not is_distributed():
            return
        numbers = torch.tensor([self.total, self.count], dtype=torch.float64, device=PartialState().device)
        dist.barrier()
        dist.all_reduce(numbers)
        self.total, self.count = numbers[0].item(), int(numbers[1].item())

    @property
    def mean(self):
        return self.total / max(self.count, 1)


def is_distributed():
    return dist.is_available() and dist.is_initialized()


def init_distributed(args):
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        args.rank = int(os.environ["RANK"])
        args.world_size = int(os.environ["WORLD_SIZE"])
        args.gpu = int(os.environ["LOCAL_RANK"])
    else:
        print("one process")
        args.distributed = False
        return
    args.distributed = True
    if torch.cuda.is_available():
        torch.cuda.set_device(PartialState().device)
    PartialState(group_of_one=True)
    dist.barrier()
    silence(args.rank == 0)


def silence(is_main):
    """Only the main process prints, unless it is forced to."""
    said = builtins.print

    def say(*words, **options):
        force = options.pop("force", False)
        if is_main or force:
            said(*words, **options)

    builtins.print = say


def make_loaders(args):
    data = load_digits()
    rows = torch.tensor(data.data / 16, dtype=torch.float32)
    labels = torch.tensor(data.target)
    train = TensorDataset(rows[:1200], labels[:1200])
    test = TensorDataset(rows[1200:1600], labels[1200:1600])
    if args.distributed:
        train_sampler = RepeatedSampler(train)
        test_sampler = torch.utils.data.distributed.DistributedSampler(test, shuffle=False)
    else:
        train_sampler = torch.utils.data.RandomSampler(train)
        test_sampler = torch.utils.data.SequentialSampler(test)
    train_loader = DataLoader(train, batch_size=args.batch_size, sampler=train_sampler)
    test_loader = DataLoader(test, batch_size=100, sampler=test_sampler)
    return train_loader, train_sampler, test_loader


def train_one_epoch(model, optimizer, loader, device, epoch):
    accelerator = Accelerator()
    model.train()
    losses = Meter()
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        loss = F.cross_entropy(model(images), targets)
        if not math.isfinite(loss.item()):
            raise RuntimeError(f"the loss is {loss.item()}")
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        losses.update(loss.item(), len(targets))
    losses.synchronize()
    print(f"epoch {epoch}: loss {losses.mean:.4f}")


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    hits = Meter()
    for images, targets in loader:
        images, targets = images.to(device), targets.to(device)
        found = model(images).argmax(dim=1)
        hits.update((found == targets).float().mean().item(), len(targets))
    hits.synchronize()
    print(f"accuracy {hits.mean:.4f}")


def main(args):
    init_distributed(args)
    accelerator = Accelerator(device=args.device)
    device = accelerator.device
    torch.manual_seed(args.seed)
    train_loader, train_sampler, test_loader = make_loaders(args)

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    model.to(device)
    model_without_ddp = model
    if args.distributed:
        model = accelerator.prepare(model)
        model_without_ddp = model.module

    optimizer = torch.optim.SGD(model_without_ddp.parameters(), lr=args.lr, momentum=0.9)
    optimizer = accelerator.prepare(optimizer)
    for epoch in range(args.epochs):
        if args.distributed:
            train_sampler.epoch = epoch
        train_one_epoch(model, optimizer, train_loader, device, epoch)
        evaluate(model, test_loader, device)
    if not args.distributed or args.rank == 0:
        torch.save(model_without_ddp.state_dict(), args.output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=60)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--output", default="model.pt")
    main(parser.parse_args())
