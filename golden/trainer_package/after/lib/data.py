from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

import torch

from . import config


class Digits(Dataset):
    def __init__(self, rows):
        digits = load_digits()
        self.images = torch.tensor(digits.data[rows], dtype=torch.float32) / 16
        self.labels = torch.tensor(digits.target[rows])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"image": self.images[i], "label": self.labels[i]}


def loader(rows, train):
    return DataLoader(Digits(rows), batch_size=config.BATCH_SIZE, shuffle=train)
