"""A linear layer cut into columns over the ranks of a group of its own.

    torchrun --nproc_per_node=2 train.py
"""
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from sklearn.datasets import load_digits


class CopyToGroup(torch.autograd.Function):
    """Identity forward; the gradients of all shards are added up backward."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, grad):
        if ctx.group is not None:
            grad = grad.contiguous()
            dist.all_reduce(grad, group=ctx.group)
        return grad, None


class ReduceFromGroup(torch.autograd.Function):
    """Sum over the shards forward, identity backward."""

    @staticmethod
    def forward(ctx, x, group):
        if group is not None:
            x = x.clone()
            dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None


class ShardedMLP(nn.Module):
    def __init__(self, rank, size, group, hidden=32):
        super().__init__()
        self.group = group
        full_in, full_out = nn.Linear(64, hidden), nn.Linear(hidden, 10, bias=False)
        cols = slice(rank * hidden // size, (rank + 1) * hidden // size)
        self.w1 = nn.Parameter(full_in.weight[cols].detach().clone())
        self.b1 = nn.Parameter(full_in.bias[cols].detach().clone())
        self.w2 = nn.Parameter(full_out.weight[:, cols].detach().clone())

    def forward(self, x):
        x = CopyToGroup.apply(x, self.group)
        h = torch.relu(F.linear(x, self.w1, self.b1))
        return ReduceFromGroup.apply(F.linear(h, self.w2), self.group)


def main():
    torch.manual_seed(19)  # every rank builds the same full layer and keeps its part
    rank, size, group = 0, 1, None
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        rank, size = dist.get_rank(), dist.get_world_size()
        group = dist.new_group(ranks=list(range(size)))
        if torch.cuda.is_available():
            torch.cuda.set_device(rank)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    x, y = load_digits(return_X_y=True)
    x = torch.tensor(x[:240] / 16, dtype=torch.float32, device=device)
    y = torch.tensor(y[:240], device=device)

    model = ShardedMLP(rank, size, group).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for step in range(8):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step}: loss {loss.item():.4f}")

    if group is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
