"""A diffusion model of points on two moons."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--timesteps", type=int, default=50)
parser.add_argument("--lr", type=float, default=1e-3)
args = parser.parse_args()

accelerator = Accelerator()
device = accelerator.device
torch.manual_seed(0)

betas = torch.linspace(1e-4, 0.2, args.timesteps, device=device)
alphas_bar = torch.cumprod(1 - betas, dim=0)


def moons(n):
    angle = torch.rand(n) * 3.1416
    upper = torch.stack([angle.cos(), angle.sin()], dim=1)
    lower = torch.stack([1 - angle.cos(), 0.5 - angle.sin()], dim=1)
    return torch.where((torch.rand(n) < 0.5)[:, None], upper, lower) + 0.05 * torch.randn(n, 2)


class Denoiser(nn.Module):
    def __init__(self, timesteps, width=64):
        super().__init__()
        self.embed = nn.Embedding(timesteps, width)
        self.inner = nn.Linear(2, width)
        self.outer = nn.Sequential(nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x, t):
        return self.outer(self.inner(x) + self.embed(t))


def q_sample(x0, t, noise):
    a = alphas_bar[t][:, None]
    return a.sqrt() * x0 + (1 - a).sqrt() * noise


loader = DataLoader(TensorDataset(moons(512)), batch_size=args.batch_size, shuffle=True, drop_last=True)
model = Denoiser(args.timesteps).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)

model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(args.epochs):
    for step, (x0,) in enumerate(loader):
        x0 = x0.to(device)
        t = torch.randint(0, args.timesteps, (x0.size(0),), device=device)
        noise = torch.randn_like(x0)
        loss = F.mse_loss(model(q_sample(x0, t, noise), t), noise)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
    accelerator.print(f"epoch {epoch}: loss {accelerator.reduce(loss, 'mean').item():.4f}")

accelerator.save(model.state_dict(), "ddpm.pt")
