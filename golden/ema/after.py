from copy import deepcopy

import torch
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch import nn, optim
from torch.utils.data import DataLoader, TensorDataset


class ModelEMA:
    """Exponential moving average of everything in the model's state dict."""

    def __init__(self, model, decay=0.9, device=None):
        self.decay = decay
        self.ema = deepcopy(model).eval()
        if device is not None:  # the average may live elsewhere, on the CPU for example
            self.ema.to(device)
        self.ema.requires_grad_(False)

    @torch.no_grad()
    def update(self, model):
        now = model.state_dict()
        for name, average in self.ema.state_dict().items():
            average.lerp_(now[name].to(average.device), 1.0 - self.decay)


def run_validation(net, loader, dev):
    accelerator = Accelerator()
    net.eval()
    ok, n = 0, 0
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for img, lab in loader:
            img, lab = img.to(dev), lab.to(dev)
            ok += net(img).argmax(1).eq(lab).sum().item()
            n += lab.shape[0]
        ok, n = accelerator.merge(loader, ok, n)
    return ok / n


def main(epochs=2, bs=52, lr=0.3):
    accelerator = Accelerator()
    torch.manual_seed(40)
    dev = accelerator.device

    ds = load_digits()
    img = torch.tensor(ds.data / 16, dtype=torch.float32)
    lab = torch.tensor(ds.target)
    train_dl = DataLoader(TensorDataset(img[:199], lab[:199]), bs, shuffle=True, drop_last=False)
    val_dl = DataLoader(TensorDataset(img[199:346], lab[199:346]), bs)

    net = nn.Sequential(nn.Linear(64, 40), nn.ReLU(), nn.Linear(40, 10))
    net = net.to(dev)
    ema = ModelEMA(net, decay=0.8, device=dev)
    loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
    sgd = optim.SGD(net.parameters(), lr=lr, momentum=0.5)

    best = -1
    net, sgd, train_dl = accelerator.prepare(net, sgd, train_dl)
    for ep in range(epochs):
        net.train()
        tot = torch.zeros((), device=dev)
        for img, lab in train_dl:
            img, lab = img.to(dev), lab.to(dev)
            loss = loss_fn(net(img), lab)
            sgd.zero_grad()
            accelerator.backward(loss)
            sgd.step()
            ema.update(net)
            tot += loss.detach()
        tot = accelerator.reduce(tot, "mean")

        acc, ema_acc = run_validation(net, val_dl, dev), run_validation(ema.ema, val_dl, dev)
        accelerator.print("epoch", ep, "loss %.4f" % (tot.item() / len(train_dl)), "acc %.4f" % acc, "ema acc %.4f" % ema_acc)

        if ema_acc > best:
            best = ema_acc
            accelerator.save(
                {"model": net.state_dict(), "ema": ema.ema.state_dict(), "acc": ema_acc}, "ema_best.pt"
            )


if __name__ == "__main__":
    main()
