import torch
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Dataset

NUM_VAL = 147


class Digits(Dataset):
    def __init__(self, start, stop, transform=None):
        digits = load_digits()
        self.images = digits.images[start:stop]
        self.labels = digits.target[start:stop]
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, i):
        image = torch.as_tensor(self.images[i], dtype=torch.float32)[None] / 16
        if self.transform is not None:
            image = self.transform(image)
        return image, int(self.labels[i])


def normalize(image, mean=0.305, std=0.376):
    return (image - mean) / std


def build_loaders(num_train, batch_size):
    train_set = Digits(0, num_train, transform=normalize)
    val_set = Digits(-NUM_VAL, None, transform=normalize)
    train_loader = DataLoader(train_set, batch_size=batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=32)
    return train_loader, val_loader
