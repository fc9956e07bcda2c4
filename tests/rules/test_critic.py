"""CT202: losses with a factor that backward is given, as in a Wasserstein GAN."""

from __future__ import annotations

from .as_one import check_two_are_one

CRITIC = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
loader = DataLoader(TensorDataset(torch.randn(24, 4), torch.randn(24, 4)), batch_size=8, shuffle=True)
critic = nn.Linear(4, 1)
optimizer = torch.optim.SGD(critic.parameters(), lr=0.01)
one = torch.tensor(1.0)
minus = one * -1
for epoch in range(2):
    for real, fake in loader:
        critic.zero_grad()
        for_real = critic(real).mean()
        for_real.backward(minus)
        for_fake = critic(fake).mean()
        for_fake.backward(one)
        optimizer.step()
        shape = critic(real).pow(2).mean()
        size = critic(fake).pow(2).mean()
        torch.autograd.backward([shape, size])
        optimizer.step()
        print(for_real.item() - for_fake.item())
weights = [p.tolist() for p in critic.parameters()]
"""


def test_a_critic_trains_alike_on_two_processes() -> None:
    result = check_two_are_one(CRITIC)
    assert "accelerator.backward(for_real, gradient=minus)" in result.after
    assert "accelerator.backward(shape + size)" in result.after
