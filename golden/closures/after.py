"""Training put together from small functions that return functions."""
import functools

import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator()
DEVICE = accelerator.device
OPTIMIZERS = {
    "sgd": functools.partial(optim.SGD, momentum=0.9),
    "adam": optim.Adam,
}


def on_device(fn):
    """Decorator: move the batch before the function sees it."""

    @functools.wraps(fn)
    def wrapper(xb, yb):
        return fn(xb.to(DEVICE), yb.to(DEVICE))

    return wrapper


def make_train_step(model, loss_fn, optimizer):
    @on_device
    def train_step(xb, yb):
        model.train()
        loss = loss_fn(model(xb), yb)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item(), len(xb)

    return train_step


def make_val_step(model, loss_fn):
    @on_device
    def val_step(xb, yb):
        model.eval()
        with torch.no_grad():
            return loss_fn(model(xb), yb).item(), len(xb)

    return val_step


def mini_batches(loader, step):
    """Weighted mean of what `step` returns over the loader."""
    values, sizes = zip(*(step(xb, yb) for xb, yb in loader))
    return sum(v * n for v, n in zip(values, sizes)) / sum(sizes)


def get_data(n_train, n_valid, bs):
    x, y = map(torch.tensor, load_digits(return_X_y=True))
    x = x.float() / 16
    return (
        DataLoader(TensorDataset(x[:n_train], y[:n_train]), batch_size=bs, shuffle=True),
        DataLoader(TensorDataset(x[n_train:n_train + n_valid], y[n_train:n_train + n_valid]), batch_size=bs * 2),
    )


def get_model(opt="sgd", lr=0.1):
    model = nn.Sequential(nn.Linear(64, 36), nn.Softplus(), nn.Linear(36, 10)).to(DEVICE)
    return model, OPTIMIZERS[opt](model.parameters(), lr=lr)


def fit(epochs, model, loss_fn, optimizer, train_dl, valid_dl):
    train_step = make_train_step(model, loss_fn, optimizer)
    val_step = make_val_step(model, loss_fn)
    history = []
    for epoch in range(epochs):
        train_loss = mini_batches(train_dl, train_step)
        val_loss = mini_batches(valid_dl, val_step)
        history.append((train_loss, val_loss))
        accelerator.print(epoch, f"{train_loss:.5f}", f"{val_loss:.5f}")
    return history


if __name__ == "__main__":
    torch.manual_seed(90)
    train_dl, valid_dl = get_data(n_train=203, n_valid=147, bs=60)
    model, optimizer = get_model()
    model, optimizer, train_dl = accelerator.prepare(model, optimizer, train_dl)
    history = fit(2, model, nn.CrossEntropyLoss(), optimizer, train_dl, valid_dl)
    accelerator.print("best epoch:", min(range(len(history)), key=lambda e: history[e][1]))
