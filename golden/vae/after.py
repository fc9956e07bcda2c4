from __future__ import print_function
import argparse
import os
import torch
import torch.utils.data
from crosstrain import Accelerator
from torch import nn, optim
from torch.nn import functional as F
from sklearn.datasets import load_digits

parser = argparse.ArgumentParser(description='variational autoencoder for 8x8 digits')
parser.add_argument('--batch-size', type=int, default=128)
parser.add_argument('--epochs', type=int, default=10)
parser.add_argument('--latent', type=int, default=4, help='how many numbers describe an image')
parser.add_argument('--no-cuda', action='store_true')
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--log-interval', type=int, default=10)
args = parser.parse_args()
args.cuda = torch.cuda.is_available() and not args.no_cuda

torch.manual_seed(args.seed)

accelerator = Accelerator(cpu=args.no_cuda, loss_reduction="sum")
device = accelerator.device

pixels = torch.tensor(load_digits().data, dtype=torch.float32) / 16
extra = dict(num_workers=1, pin_memory=True) if args.cuda else {}
train_loader = torch.utils.data.DataLoader(pixels[:1450], batch_size=args.batch_size, shuffle=True, **extra)
test_loader = torch.utils.data.DataLoader(pixels[1450:], batch_size=args.batch_size, shuffle=False, **extra)


class VAE(nn.Module):
    def __init__(self, latent, hidden=40):
        super(VAE, self).__init__()
        self.latent = latent
        self.enc = nn.Linear(64, hidden)
        self.enc_mean = nn.Linear(hidden, latent)
        self.enc_logvar = nn.Linear(hidden, latent)
        self.dec = nn.Sequential(nn.Linear(latent, hidden), nn.ReLU(), nn.Linear(hidden, 64), nn.Sigmoid())

    def encode(self, image):
        h = torch.relu(self.enc(image))
        return self.enc_mean(h), self.enc_logvar(h)

    def forward(self, image):
        mean, logvar = self.encode(image)
        if self.training:
            code = mean + torch.randn_like(mean) * (logvar / 2).exp()
        else:
            code = mean
        return self.dec(code), mean, logvar

    def sample(self, n, device):
        return self.dec(torch.randn(n, self.latent, device=device))


model = VAE(args.latent).to(device)
optimizer = optim.Adam(model.parameters(), lr=2e-3)


def negative_elbo(output, image, mean, logvar):
    # both terms are summed over everything, the batch included
    misfit = F.binary_cross_entropy(output, image, reduction='sum')
    divergence = 0.5 * (mean.pow(2) + logvar.exp() - 1 - logvar).sum()
    return misfit + divergence


def train(epoch):
    model.train()
    train_loss = 0
    for batch_idx, data in enumerate(train_loader):
        data = data.to(device)
        optimizer.zero_grad()
        output, mean, logvar = model(data)
        loss = negative_elbo(output, data, mean, logvar)
        accelerator.backward(loss)
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % args.log_interval == 0:
            accelerator.print('epoch {} ({}/{}): {:.4f} per image'.format(
                epoch, batch_idx * accelerator.reduce(len(data), "sum"), len(train_loader.dataset),
                accelerator.reduce(loss, "mean").item() / len(data)))
    train_loss = accelerator.reduce(train_loss, "sum")

    accelerator.print('epoch {} train: {:.4f}'.format(epoch, train_loss / len(train_loader.dataset)))


def test(epoch):
    model.eval()
    test_loss = 0
    evaluation_loader = accelerator.prepare_evaluation(test_loader)
    with torch.no_grad():
        for i, data in enumerate(evaluation_loader, evaluation_loader.start):
            data = data.to(device)
            output, mean, logvar = model(data)
            test_loss += negative_elbo(output, data, mean, logvar).item()
            if i == 0:
                # keep a few images together with what came out
                n = min(data.size(0), 8)
                pairs = torch.stack([data[:n], output[:n]], dim=1)
                torch.save(pairs.cpu(), 'results/pairs_%d.pt' % epoch)
        test_loss = accelerator.merge(evaluation_loader, test_loss)

    test_loss /= len(test_loader.dataset)
    accelerator.print('epoch {} test:  {:.4f}'.format(epoch, test_loss))


if __name__ == "__main__":
    if not os.path.exists('results'):
        os.makedirs('results', exist_ok=True)
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(1, args.epochs + 1):
        train(epoch)
        test(epoch)
        with torch.no_grad():
            accelerator.save(model.sample(16, device).cpu(), 'results/sample_%d.pt' % epoch)
