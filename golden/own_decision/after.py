"""Training that stops when its outputs spread too far: a number of the batch as it lies, not of its rows."""

import torch
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, LIMIT = 6, 120.0


def main():
    accelerator = Accelerator()
    torch.manual_seed(11)
    device = accelerator.device
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    loader = DataLoader(TensorDataset(images, torch.tensor(digits.target)), batch_size=96, shuffle=True)
    model = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    stopped = False
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for epoch in range(EPOCHS):
        for step, (x, y) in enumerate(loader):
            x, y = x.to(device), y.to(device)
            out = model(x)
            loss = F.cross_entropy(out, y)
            optimizer.zero_grad()
            accelerator.backward(loss)
            optimizer.step()
            # how far a walk along the rows of the batch gets
            reach = out.detach().t().cumsum(1).abs().max()
            if accelerator.reduce(reach, "mean") > LIMIT:
                stopped = True
                break
        if stopped:
            break
    accelerator.print("stopped early" if stopped else "ran to the end")


if __name__ == "__main__":
    main()
