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


def train(model, stream, optimizer, criterion, device, log_every=2):
    accelerator = Accelerator()
    model.train()
    seen = 0
    for n, (x, y) in enumerate(stream, start=1):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        accelerator.backward(loss)
        optimizer.step()
        seen += x.size(0)
        if n % log_every == 0:
            accelerator.print(
                f"{accelerator.reduce(seen, 'sum')} examples seen, loss {accelerator.reduce(loss, 'mean').item():.4f}"
            )


def test(model, stream, criterion, device):
    accelerator = Accelerator()
    model.eval()
    loss_sum, correct, n = 0.0, 0, 0
    stream = accelerator.prepare_evaluation(stream)
    with torch.no_grad():
        for x, y in stream:
            x, y = x.to(device), y.to(device)
            out = model(x)
            loss_sum += criterion(out, y).item() * x.size(0)
            correct += (out.argmax(1) == y).sum().item()
            n += x.size(0)
        loss_sum, correct, n = accelerator.merge(stream, loss_sum, correct, n)
    accelerator.print(f"test loss {loss_sum / n:.4f}, accuracy {correct / n:.4f} on {n} examples")


if __name__ == "__main__":
    torch.manual_seed(100)
    accelerator = Accelerator()
    device = accelerator.device
    train_stream = DataLoader(DigitStream(0, 231), batch_size=60)
    test_stream = DataLoader(DigitStream(1000, 1147), batch_size=32)
    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    model, optimizer, train_stream = accelerator.prepare(model, optimizer, train_stream)
    for epoch in range(2):
        accelerator.print("epoch", epoch)
        train(model, train_stream, optimizer, criterion, device)
        test(model, test_stream, criterion, device)
