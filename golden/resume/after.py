import argparse
import logging
import os

import torch
import torch.nn as nn
from crosstrain import Accelerator, PartialState
from sklearn.datasets import load_digits
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

logger = logging.getLogger("digits")


def get_parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=20, help="total number of epochs, those before --resume included")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--workdir", type=str, default="work")
    parser.add_argument("--resume", type=str, default="", help="checkpoint to continue from")
    parser.add_argument("--cpu", action="store_true")
    return parser


def setup_logging(workdir):
    logger.setLevel(logging.INFO if PartialState().is_main_process else logging.WARNING)
    fmt = logging.Formatter("%(levelname)s %(message)s")
    for handler in (
        logging.StreamHandler(),
        logging.FileHandler(os.path.join(workdir, "train.log") if PartialState().is_main_process else os.devnull)
    ):
        handler.setFormatter(fmt)
        logger.addHandler(handler)


def build():
    model = nn.Sequential(nn.Linear(64, 50), nn.Tanh(), nn.Linear(50, 10))
    return model


def save_checkpoint(path, epoch, model, optimizer, scheduler, best):
    accelerator = Accelerator()
    accelerator.save({
        "epoch": epoch + 1,
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "best": best,
    }, path)


def load_checkpoint(path, model, optimizer, scheduler, device):
    checkpoint = torch.load(path, map_location=device)
    # checkpoints written by DataParallel have a prefix
    state = {k.replace("module.", "", 1) if k.startswith("module.") else k: v for k, v in checkpoint["model"].items()}
    model.load_state_dict(state)
    optimizer.load_state_dict(checkpoint["optimizer"])
    scheduler.load_state_dict(checkpoint["scheduler"])
    return checkpoint["epoch"], checkpoint["best"]


def evaluate(model, loader, device):
    accelerator = Accelerator()
    model.eval()
    correct = 0
    loader = accelerator.prepare_evaluation(loader)
    with torch.no_grad():
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            correct += (model(x).max(1).indices == y).sum().item()
        correct = accelerator.merge(loader, correct)
    return correct / len(loader.dataset)


def main():
    args = get_parser().parse_args()
    accelerator = Accelerator(cpu=args.cpu)
    os.makedirs(args.workdir, exist_ok=True)
    setup_logging(args.workdir)
    torch.manual_seed(9)
    device = accelerator.device

    digits = load_digits()
    x = torch.tensor(digits.data, dtype=torch.float32) / 16
    y = torch.tensor(digits.target)
    train_loader = DataLoader(TensorDataset(x[:1400], y[:1400]), batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(TensorDataset(x[1400:1650], y[1400:1650]), batch_size=32)
    test_loader = DataLoader(TensorDataset(x[1650:], y[1650:]), batch_size=32)

    model = build().to(device)
    optimizer = SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = StepLR(optimizer, step_size=5, gamma=0.5)
    criterion = nn.CrossEntropyLoss()

    start_epoch, best = 0, 0.0
    if args.resume:
        if os.path.isfile(args.resume):
            start_epoch, best = load_checkpoint(args.resume, model, optimizer, scheduler, device)
            logger.info("continuing from %s at epoch %d", args.resume, start_epoch)
        else:
            logger.warning("no checkpoint at %s", args.resume)

    last_path = os.path.join(args.workdir, "last.pth")
    best_path = os.path.join(args.workdir, "best.pth")
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    for epoch in range(start_epoch, args.epochs):
        model.train()
        for x_batch, y_batch in train_loader:
            x_batch, y_batch = x_batch.to(device), y_batch.to(device)
            optimizer.zero_grad()
            loss = criterion(model(x_batch), y_batch)
            accelerator.backward(loss)
            optimizer.step()
        scheduler.step()

        acc = evaluate(model, val_loader, device)
        logger.info("epoch %d: last loss %.4f, validation accuracy %.4f", epoch, loss.item(), acc)
        if acc > best:
            best = acc
            save_checkpoint(best_path, epoch, model, optimizer, scheduler, best)
        save_checkpoint(last_path, epoch, model, optimizer, scheduler, best)

    # the test set is only for the best model
    if os.path.exists(best_path):
        model.load_state_dict(torch.load(best_path, map_location=device)["model"])
    accelerator.print("test accuracy of the best model: %.4f" % evaluate(model, test_loader, device))


if __name__ == "__main__":
    main()
