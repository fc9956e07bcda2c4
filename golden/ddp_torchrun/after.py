"""
One GPU:       python train.py
Several GPUs:  torchrun --nproc_per_node=4 train.py
"""
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


def setup_distributed():
    """Returns rank, world size and local rank; 0, 1, 0 without torchrun."""
    if "RANK" not in os.environ:
        return 0, 1, 0
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    PartialState(group_of_one=True)
    local_rank = int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(PartialState().device)
    return dist.get_rank(), dist.get_world_size(), local_rank


def cleanup():
    if dist.is_initialized():
        dist.destroy_process_group()


def reduce_sum(value, device):
    """Sum of a python number over all ranks."""
    t = torch.tensor(float(value), device=device)
    if dist.is_initialized():
        dist.all_reduce(t, op=dist.ReduceOp.SUM)
    return t.item()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1, stride=2)
        self.fc = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        return self.fc(x.flatten(1))


def main():
    accelerator = Accelerator()
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64, help="per process")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--num-train", type=int, default=1450)
    args = parser.parse_args()

    rank, world_size, local_rank = setup_distributed()
    distributed = world_size > 1
    device = accelerator.device
    torch.manual_seed(13)

    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train_set = TensorDataset(images[:args.num_train], labels[:args.num_train])
    val_set = TensorDataset(images[-147:], labels[-147:])

    train_sampler = DistributedSampler(train_set) if distributed else None
    val_sampler = DistributedSampler(val_set, shuffle=False) if distributed else None
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=(train_sampler is None),
                              sampler=train_sampler)
    val_loader = DataLoader(val_set, batch_size=32, sampler=val_sampler)

    model = Net().to(device)
    if distributed:
        model = accelerator.prepare(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)

    optimizer = accelerator.prepare(optimizer)
    for epoch in range(args.epochs):
        if train_sampler is not None:
            train_sampler.set_epoch(epoch)  # another order in every epoch
        model.train()
        loss_sum = count = 0
        for x, y in train_loader:
            x, y = x.to(device), y.to(device)
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            loss_sum += loss.item() * len(y)
            count += len(y)
        train_loss = reduce_sum(loss_sum, device) / reduce_sum(count, device)

        model.eval()
        correct = total = 0
        with torch.no_grad():
            for x, y in val_loader:
                x, y = x.to(device), y.to(device)
                correct += (model(x).argmax(1) == y).sum().item()
                total += len(y)
        accuracy = reduce_sum(correct, device) / reduce_sum(total, device)

        if rank == 0:
            print(f"Epoch {epoch}: train loss {train_loss:.4f}, val accuracy {accuracy:.4f}")

    if rank == 0:
        raw = model.module if distributed else model
        torch.save(raw.state_dict(), "ddp_model.pt")
    cleanup()


if __name__ == "__main__":
    main()
