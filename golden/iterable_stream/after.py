import math

import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info


class DigitStream(IterableDataset):
    """Reads digits one after the other, like lines of a file that is too large for memory."""

    def __init__(self, start, end):
        super().__init__()
        self.start = start
        self.end = end

    def __iter__(self):
        worker = get_worker_info()
        lo, hi = self.start, self.end
        if worker is not None:  # every worker reads its own piece
            share = math.ceil((hi - lo) / worker.num_workers)
            lo = lo + worker.id * share
            hi = min(lo + share, hi)
        data, target = load_digits(return_X_y=True)
        for row, label in zip(data[lo:hi], target[lo:hi]):
            yield torch.tensor(row, dtype=torch.float32) / 16, int(label)


def train(model, stream, optimizer, criterion, log_every=2):
    model.train()
    seen = 0
    for n, (x, y) in enumerate(stream, start=1):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        seen += accelerator.global_rows(x)
        if n % log_every == 0:
            accelerator.print(
                f"{seen} examples seen, loss {accelerator.reduce(loss, reduction='mean').item():.4f}"
            )


def test(model, stream, criterion):
    model.eval()
    loss_sum, correct, n = 0.0, 0, 0
    with torch.no_grad():
        for x, y in stream:
            out = model(x)
            out, y = accelerator.own_rows((out, y))
            if not len(y):
                continue
            loss_sum += criterion(out, y).item() * y.size(0)
            correct += (out.argmax(1) == y).sum().item()
            n += y.size(0)
        loss_sum, correct, n = accelerator.reduce((loss_sum, correct, n), reduction="sum")
    accelerator.print(f"test loss {loss_sum / n:.4f}, accuracy {correct / n:.4f} on {n} examples")


if __name__ == "__main__":
    torch.manual_seed(100)
    accelerator = Accelerator()
    train_stream = DataLoader(DigitStream(0, 231), batch_size=60)
    test_stream = DataLoader(DigitStream(1000, 1147), batch_size=32)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    model, optimizer, train_stream, test_stream = accelerator.prepare(
        model, optimizer, train_stream, test_stream
    )
    criterion = nn.CrossEntropyLoss()
    for epoch in range(2):
        accelerator.print("epoch", epoch)
        train(model, train_stream, optimizer, criterion)
        test(model, test_stream, criterion)
