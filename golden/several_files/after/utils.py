import os
import random

import numpy as np
import torch


class MetricSums:
    """Sums over samples; `means` divides them by the number of samples."""

    def __init__(self):
        self.n = 0
        self.sums = {}

    def add(self, n, **values):
        self.n += n
        for name, value in values.items():
            self.sums[name] = self.sums.get(name, 0.0) + value

    def means(self):
        return {name: round(total / self.n, 4) for name, total in self.sums.items()}


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)


def count_parameters(model):
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


def save_checkpoint(folder, name, model, optimizer, epoch):
    os.makedirs(folder, exist_ok=True)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
    torch.save(state, os.path.join(folder, name))
