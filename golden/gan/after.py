"""A tiny GAN that learns to draw 8x8 digits."""
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--nz", type=int, default=16, help="length of the noise vector")
parser.add_argument("--nh", type=int, default=64, help="hidden units of both networks")
parser.add_argument("--niter", type=int, default=25, help="passes over the images")
parser.add_argument("--max-images", type=int, default=None)
parser.add_argument("--lr", type=float, default=0.0005)
parser.add_argument("--outf", default="gan_out", help="images and weights go here")
parser.add_argument("--seed", type=int, default=99)
opt = parser.parse_args()
accelerator = Accelerator()
accelerator.print(opt)

os.makedirs(opt.outf, exist_ok=True)
torch.manual_seed(opt.seed)
device = accelerator.device

images = torch.tensor(load_digits().data, dtype=torch.float32) / 8.0 - 1.0  # [-1, 1]
dataset = TensorDataset(images[: opt.max_images])
dataloader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=True)


class Generator(nn.Module):
    def __init__(self, nz, nh):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(nz, nh), nn.ReLU(), nn.Linear(nh, nh), nn.ReLU(), nn.Linear(nh, 64))

    def forward(self, z):
        return torch.tanh(self.layers(z))


class Discriminator(nn.Module):
    def __init__(self, nh):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, nh), nn.LeakyReLU(0.2), nn.Linear(nh, 1))

    def forward(self, x):
        return torch.sigmoid(self.layers(x)).squeeze(1)


def small_weights(layer):
    if isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, std=0.05)
        nn.init.zeros_(layer.bias)


netG = Generator(opt.nz, opt.nh).to(device)
netD = Discriminator(opt.nh).to(device)
netG.apply(small_weights)
netD.apply(small_weights)

criterion = nn.BCELoss()
fixed_noise = torch.randn(16, opt.nz, device=device)

# one optimizer for each network
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(0.5, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(0.5, 0.999))

netD, netG, optimizerD, optimizerG, dataloader = accelerator.prepare(
    netD, netG, optimizerD, optimizerG, dataloader
)
for epoch in range(opt.niter):
    for i, (real,) in enumerate(dataloader):
        real = real.to(device)
        batch_size = real.size(0)
        real_label = torch.full((batch_size,), 1.0, device=device)
        fake_label = torch.full((batch_size,), 0.0, device=device)
        noise = torch.randn(batch_size, opt.nz, device=device)
        fake = netG(noise)

        # ---- discriminator: tell the two apart; two backward passes, one step
        netD.zero_grad()
        scores_real = netD(real)
        lossD_real = criterion(scores_real, real_label)
        accelerator.backward(lossD_real)
        lossD_fake = criterion(netD(fake.detach()), fake_label)
        accelerator.backward(lossD_fake)
        optimizerD.step()
        lossD = lossD_real + lossD_fake

        # ---- generator: be taken for real
        netG.zero_grad()
        lossG = criterion(netD(fake), real_label)
        accelerator.backward(lossG)
        optimizerG.step()

        accelerator.print("epoch %d batch %d/%d  D %.4f  G %.4f  D(real) %.4f"
              % (
                  epoch, i + 1, len(dataloader), accelerator.reduce(lossD, "mean").item(),
                  accelerator.reduce(lossG, "mean").item(), accelerator.reduce(scores_real.mean(), "mean").item()
              ))

    # the same noise after every epoch, to see the drawings change
    with torch.no_grad():
        drawings = netG(fixed_noise)
    if accelerator.is_main_process:
        np.save("%s/drawings_%03d.npy" % (opt.outf, epoch), drawings.cpu().numpy())

    accelerator.save(netG.state_dict(), "%s/generator_%d.pth" % (opt.outf, epoch))
    accelerator.save(netD.state_dict(), "%s/discriminator_%d.pth" % (opt.outf, epoch))
