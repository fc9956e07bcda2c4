#!/usr/bin/env python3
# Compress the 8x8 digits to a handful of numbers and draw them again.

import argparse
import os

import numpy as np
import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader

SHADES = " .:-=+*#@"


class AutoEncoder(nn.Module):
  def __init__(self, code_size):
    super().__init__()
    self.encoder = nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, code_size))
    self.decoder = nn.Sequential(nn.Linear(code_size, 32), nn.Tanh(), nn.Linear(32, 64), nn.Sigmoid())

  def encode(self, x):
    return self.encoder(x)

  def decode(self, z):
    return self.decoder(z)

  def forward(self, x):
    return self.decode(self.encode(x))


def draw(row):
  """An image as eight lines of characters."""
  levels = np.rint(np.clip(row, 0, 1) * (len(SHADES) - 1)).astype(int).reshape(8, 8)
  return ["".join(SHADES[v] for v in line) for line in levels]


def main(opts):
  torch.manual_seed(opts.seed)
  accelerator = Accelerator(cpu=opts.cpu)
  dev = accelerator.device

  pixels = load_digits().data.astype("float32") / 16
  train_pixels, test_pixels = pixels[:opts.n_train], pixels[-147:]
  loader = DataLoader(train_pixels, batch_size=opts.batch, shuffle=True)
  test_loader = DataLoader(test_pixels, batch_size=32)

  ae = AutoEncoder(opts.code).to(dev)
  optim = torch.optim.Adam(ae.parameters(), lr=opts.lr, eps=1e-5)
  start_epoch = 0

  ae, optim, loader = accelerator.prepare(ae, optim, loader)
  for epoch in range(start_epoch, opts.epochs):
    ae.train()
    total, batches = 0.0, 0
    for x in loader:
      x = x.to(dev)
      recon = ae(x)
      loss = nn.functional.mse_loss(recon, x)
      optim.zero_grad()
      accelerator.backward(loss)
      optim.step()
      total += loss.item()
      batches += 1
    total = accelerator.reduce(total, "mean")
    avg = total / batches
    accelerator.print("epoch {:3d}  average loss {:.5f}".format(epoch, avg))

    accelerator.save({
      "epoch": epoch,
      "model_state_dict": ae.state_dict(),
      "optimizer_state_dict": optim.state_dict(),
      "loss": avg,
    }, os.path.join(opts.out, "ae.tar"))

  # reconstruction of images the model was not trained on
  ae.eval()
  recons, errors = [], []
  test_loader = accelerator.prepare_evaluation(test_loader)
  with torch.no_grad():
    for x in test_loader:
      x = x.to(dev)
      recon = ae(x)
      errors.extend(((recon - x) ** 2).mean(dim=1).tolist())
      recons.append(recon.cpu().numpy())
    errors, recons = accelerator.merge(test_loader, errors, recons)
  recons = np.concatenate(recons)
  accelerator.print("test reconstruction error %.5f over %d images" % (np.mean(errors), len(recons)))

  if accelerator.is_main_process:
    np.savez(os.path.join(opts.out, "reconstructions.npz"), original=test_pixels, reconstructed=recons)
    with open(os.path.join(opts.out, "first.txt"), "w") as f:
      for left, right in zip(draw(test_pixels[0]), draw(recons[0])):
        f.write(left + "   |   " + right + "\n")


if __name__ == "__main__":
  ap = argparse.ArgumentParser()
  ap.add_argument("--epochs", type=int, default=20)
  ap.add_argument("--batch", type=int, default=64)
  ap.add_argument("--n-train", type=int, default=1500)
  ap.add_argument("--code", type=int, default=6)
  ap.add_argument("--lr", type=float, default=0.01)
  ap.add_argument("--cpu", action="store_true")
  ap.add_argument("--seed", type=int, default=17)
  ap.add_argument("--out", default=".")
  main(ap.parse_args())
