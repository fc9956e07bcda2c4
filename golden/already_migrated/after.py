"""A digits classifier that was written with Accelerator from the start."""
import torch
import torch.nn as nn
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def train_one_epoch(accelerator, model, loader, criterion, optimizer, scheduler):
    model.train()
    loss_sum, count = 0.0, 0
    for x, y in loader:
        optimizer.zero_grad()
        losses = criterion(model(x), y)
        accelerator.backward(losses.mean())
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        losses = accelerator.gather_for_metrics(losses.detach())
        loss_sum += losses.sum().item()
        count += losses.numel()
    return loss_sum / count


@torch.no_grad()
def accuracy(accelerator, model, loader):
    model.eval()
    hits, count = 0, 0
    for x, y in loader:
        pred, y = accelerator.gather_for_metrics((model(x).argmax(dim=1), y))
        hits += (pred == y).sum().item()
        count += y.numel()
    return hits / count


def main():
    accelerator = Accelerator(step_scheduler_with_optimizer=False)
    torch.manual_seed(5)

    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    train_loader = DataLoader(TensorDataset(x[:173], y[:173]), batch_size=48, shuffle=True)
    test_loader = DataLoader(TensorDataset(x[173:320], y[173:320]), batch_size=32)

    model = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    criterion = nn.CrossEntropyLoss(reduction="none")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=2 * len(train_loader))

    model, optimizer, train_loader, test_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, test_loader, scheduler
    )

    for epoch in range(2):
        loss = train_one_epoch(accelerator, model, train_loader, criterion, optimizer, scheduler)
        acc = accuracy(accelerator, model, test_loader)
        accelerator.print(f"epoch {epoch}: loss {loss:.4f}, test accuracy {acc:.4f}")

    accelerator.wait_for_everyone()
    accelerator.save_model(model, "digits.pt")


if __name__ == "__main__":
    main()
