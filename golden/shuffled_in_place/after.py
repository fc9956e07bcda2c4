"""A classifier of two spirals whose arrays are shuffled in place before each pass over a list of batches."""
import argparse
import os

import numpy as np
import torch
import torch.nn as nn
from crosstrain import Accelerator


def spirals(n, rng):
    label = rng.integers(0, 2, n)
    radius = np.sqrt(rng.random(n))
    angle = 4 * radius + np.pi * label
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1) + 0.03 * rng.standard_normal((n, 2))
    return points.astype("float32"), label.astype("int64")


def make_batches(xs, ys, size):
    batches = []
    for start in range(0, len(xs), size):
        batches.append((torch.tensor(xs[start:start + size]), torch.tensor(ys[start:start + size])))
    return batches


def shuffle_together(xs, ys):
    state = np.random.get_state()
    np.random.shuffle(xs)
    np.random.set_state(state)
    np.random.shuffle(ys)


class Trainer(object):
    def __init__(self, hp):
        accelerator = Accelerator()
        self.hp = hp
        self.device = accelerator.device
        self.net = nn.Sequential(nn.Linear(2, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 2))
        self.net.to(self.device)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=hp.lr)
        self.net, self.opt = accelerator.prepare(self.net, self.opt)
        self.loss_fn = nn.CrossEntropyLoss()

    def fit(self, xs, ys):
        accelerator = Accelerator()
        for epoch in range(self.hp.epochs):
            shuffle_together(xs, ys)
            for x, y in accelerator.prepare(make_batches(xs, ys, self.hp.batch)):
                x, y = x.to(self.device), y.to(self.device)
                loss = self.loss_fn(self.net(x), y)
                self.opt.zero_grad()
                accelerator.backward(loss)
                self.opt.step()
        return self

    def accuracy(self, xs, ys):
        with torch.no_grad():
            guess = self.net(torch.tensor(xs).to(self.device)).argmax(1).cpu().numpy()
        return (guess == ys).mean()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=15)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--out", default="out")
    hp = p.parse_args()
    np.random.seed(2)
    torch.manual_seed(2)
    accelerator = Accelerator()
    rng = np.random.default_rng(2)
    train, test = spirals(448, rng), spirals(200, rng)
    trainer = Trainer(hp).fit(*train)
    accelerator.print("accuracy %.3f" % trainer.accuracy(*test))
    if not os.path.exists(hp.out):
        os.makedirs(hp.out, exist_ok=True)
    accelerator.save(trainer.net.state_dict(), os.path.join(hp.out, "net.pth"))
