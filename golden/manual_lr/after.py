import argparse
import math

import torch as th
import torch.nn as nn
import torch.utils.data as tud
from crosstrain import Accelerator
from sklearn.datasets import load_digits

ap = argparse.ArgumentParser()
ap.add_argument("--lr", type=float, default=0.4)
ap.add_argument("--min-lr", type=float, default=0.001)
ap.add_argument("--warmup-epochs", type=float, default=0.5)
ap.add_argument("--epochs", type=int, default=20)
ap.add_argument("--batch-size", type=int, default=64)
ap.add_argument("--images", type=int, default=1400)
ap.add_argument("--gpu", type=int, default=0)
hps = ap.parse_args()


def adjust_learning_rate(optimizer, epoch):
    """Half a cosine after a warm-up; `epoch` may be a fraction."""
    if epoch < hps.warmup_epochs:
        lr = hps.lr * epoch / hps.warmup_epochs
    else:
        t = (epoch - hps.warmup_epochs) / (hps.epochs - hps.warmup_epochs)
        lr = hps.min_lr + (hps.lr - hps.min_lr) * 0.5 * (1.0 + math.cos(math.pi * t))
    for group in optimizer.param_groups:
        group["lr"] = lr * group.get("lr_scale", 1.0)
    return lr


th.manual_seed(15)
accelerator = Accelerator(device=hps.gpu)
has_gpu = th.cuda.is_available()
if has_gpu:
    th.cuda.set_device(accelerator.device)

bunch = load_digits()
images = th.tensor(bunch.data, dtype=th.float32).div_(16)
labels = th.tensor(bunch.target)
train_ld = tud.DataLoader(tud.TensorDataset(images[:hps.images], labels[:hps.images]), hps.batch_size, shuffle=True)
test_ld = tud.DataLoader(tud.TensorDataset(images[-147:], labels[-147:]), hps.batch_size)

body = nn.Sequential(nn.Linear(64, 32), nn.ReLU())
head = nn.Linear(32, 10)
net = nn.Sequential(body, head)
if has_gpu:
    net = net.to(accelerator.device)
optimizer = th.optim.SGD([{"params": body.parameters(), "lr_scale": 0.5}, {"params": head.parameters()}],
                         lr=hps.lr, momentum=0.9)
ce = nn.CrossEntropyLoss()

net, optimizer, train_ld = accelerator.prepare(net, optimizer, train_ld)
test_ld = accelerator.prepare_evaluation(test_ld)
for epoch in range(hps.epochs):
    net.train()
    for it, (x, t) in enumerate(train_ld):
        # the learning rate moves with every batch, not with every epoch
        lr = adjust_learning_rate(optimizer, epoch + it / len(train_ld))
        if has_gpu:
            x, t = x.to(accelerator.device, non_blocking=True), t.to(accelerator.device, non_blocking=True)
        loss = ce(net(x), t)
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        accelerator.print(
            "%3d %3d/%d  lr %.5f  loss %.4f" % (
                epoch, it, len(train_ld), lr, accelerator.reduce(loss, "mean").item()
            )
        )

    net.eval()
    n_err = 0
    for x, t in test_ld:
        if has_gpu:
            x, t = x.to(accelerator.device), t.to(accelerator.device)
        with th.no_grad():
            n_err += (net(x).max(1)[1] != t).sum().item()
    n_err = accelerator.merge(test_ld, n_err)
    accelerator.print("%3d errors %d of %d" % (epoch, n_err, len(test_ld.dataset)))
