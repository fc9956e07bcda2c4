import os

import numpy as np
import torch
import torch.autograd as autograd
import torch.nn as nn
from sklearn.datasets import load_digits
from torch.autograd import Variable
from torch.utils.data import DataLoader

os.makedirs("images", exist_ok=True)

n_epochs = 2
batch_size = 40
lr = 0.002
b1, b2 = 0.5, 0.9
latent_dim = 10
n_critic = 2
lambda_gp = 10
sample_interval = 4

cuda = True if torch.cuda.is_available() else False
np.random.seed(5)
torch.manual_seed(5)


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()

        def block(in_feat, out_feat):
            return [nn.Linear(in_feat, out_feat), nn.LeakyReLU(0.2, inplace=True)]

        self.model = nn.Sequential(*block(latent_dim, 32), *block(32, 64), nn.Linear(64, 64), nn.Tanh())

    def forward(self, z):
        return self.model(z).view(z.shape[0], 1, 8, 8)


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        self.model = nn.Sequential(
            nn.Linear(64, 32),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Linear(32, 1),
        )

    def forward(self, img):
        return self.model(img.view(img.shape[0], -1))


generator = Generator()
discriminator = Discriminator()

if cuda:
    generator.cuda()
    discriminator.cuda()

images = load_digits().images[:107, None].astype(np.float32) / 8 - 1
dataloader = DataLoader(images, batch_size=batch_size, shuffle=True)

optimizer_G = torch.optim.Adam(generator.parameters(), lr=lr, betas=(b1, b2))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=lr, betas=(b1, b2))

Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor


def compute_gradient_penalty(D, real_samples, fake_samples):
    """The critic's gradient should have norm one between real and fake images"""
    alpha = Tensor(np.random.random((real_samples.size(0), 1, 1, 1)))
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = Variable(Tensor(real_samples.shape[0], 1).fill_(1.0), requires_grad=False)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=fake,
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


# ----------
#  Training
# ----------

batches_done = 0
for epoch in range(n_epochs):
    for i, imgs in enumerate(dataloader):

        real_imgs = Variable(imgs.type(Tensor))

        # the critic
        optimizer_D.zero_grad()
        z = Variable(Tensor(np.random.normal(0, 1, (imgs.shape[0], latent_dim))))
        fake_imgs = generator(z).detach()
        gradient_penalty = compute_gradient_penalty(discriminator, real_imgs.data, fake_imgs.data)
        d_loss = (-torch.mean(discriminator(real_imgs)) + torch.mean(discriminator(fake_imgs))
                  + lambda_gp * gradient_penalty)
        d_loss.backward()
        optimizer_D.step()

        # the generator learns once every n_critic steps
        if i % n_critic == n_critic - 1:
            optimizer_G.zero_grad()
            fake_imgs = generator(z)
            g_loss = -torch.mean(discriminator(fake_imgs))
            g_loss.backward()
            optimizer_G.step()

            print("[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                  % (epoch, n_epochs, i, len(dataloader), d_loss.item(), g_loss.item()))

        if batches_done % sample_interval == 0:
            np.save("images/%d.npy" % batches_done, fake_imgs.data[:25].cpu().numpy())

        batches_done += 1
