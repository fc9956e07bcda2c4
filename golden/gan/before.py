"""A tiny GAN that learns to draw 8x8 digits."""
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
import torch.optim as optim
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--nz", type=int, default=16, help="size of the latent vector")
parser.add_argument("--nh", type=int, default=64, help="hidden units")
parser.add_argument("--niter", type=int, default=25, help="number of epochs")
parser.add_argument("--max-images", type=int, default=None)
parser.add_argument("--lr", type=float, default=0.0005)
parser.add_argument("--beta1", type=float, default=0.5, help="beta1 for Adam")
parser.add_argument("--outf", default="gan_out", help="folder for images and models")
parser.add_argument("--manual-seed", type=int, default=99)
opt = parser.parse_args()
print(opt)

os.makedirs(opt.outf, exist_ok=True)
torch.manual_seed(opt.manual_seed)
device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

images = torch.tensor(load_digits().data, dtype=torch.float32) / 8.0 - 1.0  # [-1, 1]
dataset = TensorDataset(images[: opt.max_images])
dataloader = DataLoader(dataset, batch_size=opt.batch_size, shuffle=True)


def weights_init(m):
    if isinstance(m, nn.Linear):
        nn.init.normal_(m.weight, 0.0, 0.05)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz, nh):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(nz, nh),
            nn.ReLU(True),
            nn.Linear(nh, nh),
            nn.ReLU(True),
            nn.Linear(nh, 64),
            nn.Tanh(),
        )

    def forward(self, z):
        return self.main(z)


class Discriminator(nn.Module):
    def __init__(self, nh):
        super().__init__()
        self.main = nn.Sequential(
            nn.Linear(64, nh),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(nh, 1),
            nn.Sigmoid(),
        )

    def forward(self, x):
        return self.main(x).squeeze(1)


netG = Generator(opt.nz, opt.nh).to(device)
netG.apply(weights_init)
netD = Discriminator(opt.nh).to(device)
netD.apply(weights_init)

criterion = nn.BCELoss()
fixed_noise = torch.randn(16, opt.nz, device=device)
real_label = 1.0
fake_label = 0.0

# one optimizer for each network
optimizerD = optim.Adam(netD.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lr, betas=(opt.beta1, 0.999))

for epoch in range(opt.niter):
    for i, (real,) in enumerate(dataloader):
        ############################
        # (1) Update D: maximize log(D(x)) + log(1 - D(G(z)))
        ############################
        netD.zero_grad()
        real = real.to(device)
        batch_size = real.size(0)
        label = torch.full((batch_size,), real_label, dtype=real.dtype, device=device)

        output = netD(real)
        errD_real = criterion(output, label)
        errD_real.backward()
        D_x = output.mean().item()

        # train with fake
        noise = torch.randn(batch_size, opt.nz, device=device)
        fake = netG(noise)
        label.fill_(fake_label)
        output = netD(fake.detach())
        errD_fake = criterion(output, label)
        errD_fake.backward()
        D_G_z1 = output.mean().item()
        errD = errD_real + errD_fake
        optimizerD.step()

        ############################
        # (2) Update G: maximize log(D(G(z)))
        ############################
        netG.zero_grad()
        label.fill_(real_label)  # fake labels are real for generator cost
        output = netD(fake)
        errG = criterion(output, label)
        errG.backward()
        D_G_z2 = output.mean().item()
        optimizerG.step()

        print('[%d/%d][%d/%d] Loss_D: %.4f Loss_G: %.4f D(x): %.4f D(G(z)): %.4f / %.4f'
              % (epoch, opt.niter, i, len(dataloader),
                 errD.item(), errG.item(), D_x, D_G_z1, D_G_z2))

    # what does the generator draw from the same noise after each epoch?
    with torch.no_grad():
        samples = netG(fixed_noise)
    np.save("%s/fake_samples_epoch_%03d.npy" % (opt.outf, epoch), samples.cpu().numpy())

    # do checkpointing
    torch.save(netG.state_dict(), "%s/netG_epoch_%d.pth" % (opt.outf, epoch))
    torch.save(netD.state_dict(), "%s/netD_epoch_%d.pth" % (opt.outf, epoch))
