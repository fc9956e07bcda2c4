"""bfloat16 autocast in the new spelling, with validation in the same precision."""
import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SEED = 44
LR = 3e-3
EPOCHS = 2

accelerator = Accelerator()
device_type = accelerator.device.type
device = accelerator.device


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.fc = nn.Linear(dim, dim)

    def forward(self, x):
        return x + torch.nn.functional.gelu(self.fc(self.norm(x)))


def build(dim=64, depth=2):
    return nn.Sequential(*[Block(dim) for _ in range(depth)], nn.LayerNorm(dim), nn.Linear(dim, 10))


def loaders():
    x, y = load_digits(return_X_y=True)
    x = torch.from_numpy(x).float() / 16
    y = torch.from_numpy(y)
    train = DataLoader(TensorDataset(x[:197], y[:197]), batch_size=52, shuffle=True)
    valid = DataLoader(TensorDataset(x[197:344], y[197:344]), batch_size=32)
    return train, valid


def main():
    torch.manual_seed(SEED)
    train, valid = loaders()
    model = build().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR)
    criterion = nn.CrossEntropyLoss()

    model, optimizer, train = accelerator.prepare(model, optimizer, train)
    valid = accelerator.prepare_evaluation(valid)
    for epoch in range(EPOCHS):
        model.train()
        for step, (x, y) in enumerate(train):
            x, y = x.to(device), y.to(device)
            with torch.autocast(device_type=device_type, dtype=torch.bfloat16):
                loss = criterion(model(x), y)
            optimizer.zero_grad(set_to_none=True)
            accelerator.backward(loss)
            optimizer.step()
            if step % 3 == 0:
                accelerator.print(
                    f"epoch {epoch} step {step} loss {accelerator.reduce(loss, 'mean').item():.3f}"
                )

        model.eval()
        hits = total = 0
        for x, y in valid:
            x, y = x.to(device), y.to(device)
            with torch.no_grad(), torch.autocast(device_type=device_type, dtype=torch.bfloat16):
                hits += (model(x).argmax(dim=-1) == y).sum().item()
            total += y.numel()
        hits, total = accelerator.merge(valid, hits, total)
        accelerator.print(f"epoch {epoch} validation accuracy {hits / total:.3f} ({hits} of {total})")


if __name__ == "__main__":
    main()
