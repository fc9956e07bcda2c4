import os
import random

import numpy as np
import torch
import torch.backends.cudnn as cudnn
import torch.nn as nn
import torch.nn.functional as F
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, Subset, TensorDataset

config = {
    "seed": 123,
    "epochs": 2,
    "batch_size": 60,
    "lr": 0.01,
    "num_classes": 10,
    "checkpoint": "checkpoints/last.pth",
}


class AverageMeter(object):
    """The latest value of a quantity and its running average"""

    def __init__(self, name):
        self.name = name
        self.reset()

    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0

    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return "%s %.4f (%.4f)" % (self.name, self.val, self.avg)


class SmallResNet(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.stem = nn.Conv2d(1, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv = nn.Conv2d(8, 8, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.dropout = nn.Dropout(0.3)
        self.fc = nn.Linear(8 * 16, num_classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.stem(x)))
        x = x + F.relu(self.bn2(self.conv(x)))  # residual
        x = F.avg_pool2d(x, 2).flatten(1)
        return self.fc(self.dropout(x))


def accuracy(output, target, topk=(1,)):
    """Percentage of rows whose label is among the k best guesses, for each k"""
    with torch.no_grad():
        maxk = max(topk)
        batch_size = target.size(0)
        _, pred = output.topk(maxk, 1, True, True)
        hit = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
        return [hit[:k].reshape(-1).float().sum(0).mul(100.0 / batch_size).item() for k in topk]


def train(loader, model, criterion, optimizer, epoch, device):
    accelerator = Accelerator()
    losses = AverageMeter("Loss")
    top1 = AverageMeter("Acc@1")
    model.train()

    for step, (images, target) in enumerate(loader):
        images = images.to(device, non_blocking=True)
        target = target.to(device, non_blocking=True)

        output = model(images)
        loss = criterion(output, target)

        acc1, = accuracy(output, target)
        losses.update(loss.item(), images.size(0))
        top1.update(acc1, images.size(0))

        optimizer.zero_grad(set_to_none=True)
        accelerator.backward(loss)
        optimizer.step()

        if step % 2 == 0:
            accelerator.print("Epoch [%d][%d/%d] %s %s" % (epoch, step, len(loader), losses, top1))
    top1 = accelerator.merge(loader, top1)

    return top1.avg


def validate(loader, model, criterion, device):
    accelerator = Accelerator()
    losses = AverageMeter("Loss")
    top1 = AverageMeter("Acc@1")
    top3 = AverageMeter("Acc@3")
    model.eval()

    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for images, target in loader:
            images = images.to(device, non_blocking=True)
            target = target.to(device, non_blocking=True)
            output = model(images)
            loss = criterion(output, target)

            acc1, acc3 = accuracy(output, target, topk=(1, 3))
            losses.update(loss.item(), images.size(0))
            top1.update(acc1, images.size(0))
            top3.update(acc3, images.size(0))
        losses, top1, top3 = accelerator.merge(loader, losses, top1, top3)

    accelerator.print(" * Loss %.4f Acc@1 %.3f Acc@3 %.3f" % (losses.avg, top1.avg, top3.avg))
    return top1.avg


def main():
    accelerator = Accelerator()
    random.seed(config["seed"])
    np.random.seed(config["seed"])
    torch.manual_seed(config["seed"])
    cudnn.benchmark = True
    device = accelerator.device

    digits = load_digits()
    full = TensorDataset(torch.from_numpy(digits.images).float()[:, None] / 16, torch.from_numpy(digits.target))
    order = np.random.permutation(len(full))
    train_set, val_set = Subset(full, order[:235].tolist()), Subset(full, order[235:382].tolist())

    train_loader = DataLoader(train_set, batch_size=config["batch_size"], shuffle=True, pin_memory=torch.cuda.is_available())
    val_loader = DataLoader(val_set, batch_size=32, shuffle=False)

    model = SmallResNet(config["num_classes"]).to(device)
    criterion = nn.CrossEntropyLoss().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=config["lr"])

    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(config["epochs"]):
        train_acc = train(train_loader, model, criterion, optimizer, epoch, device)
        val_acc = validate(val_loader, model, criterion, device)
        accelerator.print("Epoch %d done: train %.2f%%, val %.2f%%" % (epoch, train_acc, val_acc))

    folder = os.path.dirname(config["checkpoint"])
    if not os.path.isdir(folder):
        os.makedirs(folder, exist_ok=True)
    accelerator.save({"config": config, "state_dict": model.state_dict(), "acc": val_acc}, config["checkpoint"])


if __name__ == "__main__":
    main()
