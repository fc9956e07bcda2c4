"""A sorting network: batches of random sequences come from a generator that never ends."""
import argparse
from itertools import islice

import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from tqdm import tqdm


def sequences(batch_size, length, seed):
    generator = torch.Generator().manual_seed(seed)
    while True:
        x = torch.rand(batch_size, length, generator=generator)
        yield x, x.argsort(dim=1)


class Sorter(nn.Module):
    def __init__(self, length, width=48):
        super().__init__()
        self.length = length
        self.body = nn.Sequential(nn.Linear(length, width), nn.GELU(), nn.Linear(width, width), nn.GELU())
        self.head = nn.Linear(width, length * length)

    def forward(self, x):
        return self.head(self.body(x)).view(-1, self.length, self.length)


def evaluate(model, device, args):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for x, y in islice(sequences(args.batch_size, args.length, seed=1), 4):
            guess = model(x.to(device)).argmax(2).cpu()
            right += (guess == y).sum().item()
            total += y.numel()
    model.train()
    return right / total


def main():
    accelerator = Accelerator()
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--length", type=int, default=5)
    parser.add_argument("--log-every", type=int, default=50)
    args = parser.parse_args()
    torch.manual_seed(0)
    device = accelerator.device
    model = Sorter(args.length).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)

    stream = sequences(args.batch_size, args.length, seed=0)
    model, optimizer, stream = accelerator.prepare(model, optimizer, stream)
    for step, (x, y) in enumerate(tqdm(stream, disable=True)):
        if step == args.steps:
            break
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x).transpose(1, 2), y)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        if (step + 1) % args.log_every == 0:
            accelerator.print("step %d accuracy %.3f" % (step + 1, evaluate(model, device, args)))


if __name__ == "__main__":
    main()
