import numpy as np
import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset


def make_loader(classes, start, stop, batch_size, shuffle=False):
    """Images start:stop of the given classes; labels count from the first class."""
    data, target = load_digits(return_X_y=True)
    keep = np.isin(target, list(classes))
    x = torch.tensor(data[keep][start:stop] / 16, dtype=torch.float32)
    y = torch.tensor(target[keep][start:stop]) - min(classes)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size, shuffle=shuffle)
