import os

import numpy as np
import torch
import torch.autograd as autograd
import torch.nn as nn
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.autograd import Variable
from torch.utils.data import DataLoader

N_EPOCHS = 2
BATCH = 40
LATENT = 10
CRITIC_STEPS = 2      # steps of the critic for one of the generator
PENALTY = 10.0
SAVE_EVERY = 4

accelerator = Accelerator()
cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor

np.random.seed(5)
torch.manual_seed(5)
if not os.path.exists("images"):
    os.makedirs("images", exist_ok=True)


class Painter(nn.Module):
    def __init__(self):
        super(Painter, self).__init__()
        layers = []
        for n_in, n_out in [(LATENT, 32), (32, 64)]:
            layers += [nn.Linear(n_in, n_out), nn.LeakyReLU(0.2)]
        self.net = nn.Sequential(*layers, nn.Linear(64, 64), nn.Tanh())

    def forward(self, z):
        return self.net(z).view(-1, 1, 8, 8)


class Critic(nn.Module):
    def __init__(self):
        super(Critic, self).__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x)


painter, critic = Painter(), Critic()
if cuda:
    painter.to(accelerator.device)
    critic.to(accelerator.device)

digits = load_digits().images[:107, None].astype(np.float32) / 8 - 1
loader = DataLoader(digits, batch_size=BATCH, shuffle=True)

opt_p = torch.optim.Adam(painter.parameters(), lr=0.002, betas=(0.5, 0.9))
opt_c = torch.optim.Adam(critic.parameters(), lr=0.002, betas=(0.5, 0.9))


def gradient_penalty(real, fake):
    """Between real and painted images the critic's slope should be one."""
    t = Tensor(np.random.uniform(size=(len(real), 1, 1, 1)))
    between = Variable(t * real + (1 - t) * fake, requires_grad=True)
    score = critic(between)
    weight = Variable(Tensor(score.size()).fill_(1.0), requires_grad=False)
    slope = autograd.grad(score, between, grad_outputs=weight, create_graph=True)[0]
    return (slope.flatten(1).norm(dim=1) - 1).pow(2).mean()


seen = 0
critic, painter, opt_c, opt_p, loader = accelerator.prepare(critic, painter, opt_c, opt_p, loader)
for epoch in range(N_EPOCHS):
    for i, batch in enumerate(loader):
        real = Variable(batch.type(Tensor))
        z = Variable(Tensor(np.random.normal(size=(real.shape[0], LATENT))))

        # critic
        painted = painter(z).detach()
        loss_c = critic(painted).mean() - critic(real).mean() + PENALTY * gradient_penalty(real.data, painted.data)
        opt_c.zero_grad()
        accelerator.backward(loss_c)
        opt_c.step()

        # generator, less often
        if (i + 1) % CRITIC_STEPS == 0:
            painted = painter(z)
            loss_p = -critic(painted).mean()
            opt_p.zero_grad()
            accelerator.backward(loss_p)
            opt_p.step()
            accelerator.print(
                "epoch %d batch %d: critic %.5f painter %.5f" % (
                    epoch, i, accelerator.reduce(loss_c, "mean").item(), accelerator.reduce(loss_p, "mean").item()
                )
            )

        if seen % SAVE_EVERY == 0 and accelerator.is_main_process:
            np.save("images/%d.npy" % seen, painted.data[:25].cpu().numpy())
        seen += 1
