"""Everything under one `if`: written in one go, grown over two years."""
import argparse
import csv
import json
import os
import random
import time

import numpy as np
import torch
import torch.nn as nn
from crosstrain import Accelerator
from sklearn.datasets import load_digits
from torch.optim.lr_scheduler import MultiStepLR
from torch.utils.data import DataLoader, TensorDataset

if __name__ == "__main__":
    # ---------------------------------------------------------------- options
    parser = argparse.ArgumentParser(description="digits")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--batch-size", type=int, default=60)
    parser.add_argument("--test-batch-size", type=int, default=99)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--activation", choices=["relu", "tanh", "gelu"], default="relu")
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--milestones", type=int, nargs="*", default=[2, 3])
    parser.add_argument("--gamma", type=float, default=0.3)
    parser.add_argument("--clip", type=float, default=0.0, help="0: gradients are not clipped")
    parser.add_argument("--optimizer", choices=["sgd", "adam"], default="sgd")
    parser.add_argument("--patience", type=int, default=10, help="epochs without progress")
    parser.add_argument("--noise", type=float, default=0.0, help="of the test images, for a second test")
    parser.add_argument("--seed", type=int, default=12)
    parser.add_argument("--out", default="run")
    parser.add_argument("--resume", default="", help="a checkpoint")
    parser.add_argument("--quiet", action="store_true")
    parser.add_argument("--no-cuda", action="store_true")
    args = parser.parse_args()
    if args.epochs < 1:
        parser.error("--epochs must be at least 1")
    if args.layers < 1:
        parser.error("--layers must be at least 1")

    # ------------------------------------------------------------------ setup
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    use_cuda = torch.cuda.is_available() and not args.no_cuda
    if use_cuda:
        torch.cuda.manual_seed_all(args.seed)
    accelerator = Accelerator(cpu=args.no_cuda)
    device = accelerator.device
    if not os.path.exists(args.out):
        os.makedirs(args.out, exist_ok=True)
    if accelerator.is_main_process:
        with open(os.path.join(args.out, "options.json"), "w") as f:
            json.dump(vars(args), f, indent=2)
    if not args.quiet:
        accelerator.print("device:", device)
        for name, value in sorted(vars(args).items()):
            accelerator.print("%-18s %s" % (name, value))

    # ------------------------------------------------------------------- data
    digits = load_digits()
    images = digits.data.astype(np.float32)
    labels = digits.target.astype(np.int64)
    order = np.random.permutation(len(images))
    images, labels = images[order], labels[order]
    n_train, n_val = 1200, 297
    # normalise with the statistics of the training set
    mean = images[:n_train].mean()
    std = images[:n_train].std()
    images = (images - mean) / std
    splits = {}
    splits["train"] = (images[:n_train], labels[:n_train])
    splits["val"] = (images[n_train:n_train + n_val], labels[n_train:n_train + n_val])
    splits["test"] = (images[n_train + n_val:], labels[n_train + n_val:])
    if not args.quiet:
        for name in splits:
            counts = np.bincount(splits[name][1], minlength=10)
            accelerator.print("%-6s %5d images, per class %s" % (name, len(splits[name][1]), counts.tolist()))
    train_set = TensorDataset(torch.from_numpy(splits["train"][0]), torch.from_numpy(splits["train"][1]))
    val_set = TensorDataset(torch.from_numpy(splits["val"][0]), torch.from_numpy(splits["val"][1]))
    test_set = TensorDataset(torch.from_numpy(splits["test"][0]), torch.from_numpy(splits["test"][1]))
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    val_loader = DataLoader(val_set, batch_size=args.test_batch_size)
    test_loader = DataLoader(test_set, batch_size=args.test_batch_size)

    # ------------------------------------------------------------------ model
    if args.activation == "relu":
        activation = nn.ReLU
    elif args.activation == "tanh":
        activation = nn.Tanh
    else:
        activation = nn.GELU
    modules = []
    width = images.shape[1]
    for _ in range(args.layers):
        modules.append(nn.Linear(width, args.hidden))
        modules.append(activation())
        width = args.hidden
    modules.append(nn.Linear(width, 10))
    model = nn.Sequential(*modules).to(device)
    n_parameters = sum(p.numel() for p in model.parameters())
    if not args.quiet:
        accelerator.print(model)
        accelerator.print("%d parameters" % n_parameters)
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)

    # --------------------------------------------------------------- training
    if args.optimizer == "sgd":
        optimizer = torch.optim.SGD(
            model.parameters(),
            lr=args.lr,
            momentum=args.momentum,
            weight_decay=args.weight_decay,
        )
    else:
        optimizer = torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=args.weight_decay)
    scheduler = MultiStepLR(optimizer, milestones=args.milestones, gamma=args.gamma)
    criterion = nn.CrossEntropyLoss()

    first_epoch = 0
    best_accuracy = 0.0
    best_epoch = -1
    if args.resume:
        checkpoint = torch.load(args.resume, map_location=device)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        scheduler.load_state_dict(checkpoint["scheduler"])
        first_epoch = checkpoint["epoch"] + 1
        best_accuracy = checkpoint["best_accuracy"]
        best_epoch = checkpoint["best_epoch"]
        accelerator.print("resumed at epoch %d" % first_epoch)

    history = []
    started = time.time()
    model, optimizer, train_loader = accelerator.prepare(model, optimizer, train_loader)
    val_loader = accelerator.prepare_evaluation(val_loader)
    for epoch in range(first_epoch, args.epochs):
        model.train()
        loss_sum = 0.0
        correct = 0
        seen = 0
        for inputs, targets in train_loader:
            inputs = inputs.to(device)
            targets = targets.to(device)
            optimizer.zero_grad()
            outputs = model(inputs)
            loss = criterion(outputs, targets)
            accelerator.backward(loss)
            if args.clip > 0:
                accelerator.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            loss_sum += loss.item() * targets.size(0)
            correct += (outputs.argmax(dim=1) == targets).sum().item()
            seen += targets.size(0)
        loss_sum, correct, seen = accelerator.reduce((loss_sum, correct, seen), "sum")
        train_loss = loss_sum / seen
        train_accuracy = correct / seen
        scheduler.step()

        # validation
        model.eval()
        val_loss_sum = 0.0
        val_correct = 0
        val_seen = 0
        with torch.no_grad():
            for inputs, targets in val_loader:
                inputs = inputs.to(device)
                targets = targets.to(device)
                outputs = model(inputs)
                val_loss_sum += nn.functional.cross_entropy(outputs, targets, reduction="sum").item()
                val_correct += (outputs.argmax(dim=1) == targets).sum().item()
                val_seen += targets.size(0)
            val_loss_sum, val_correct, val_seen = accelerator.merge(
                val_loader, val_loss_sum, val_correct, val_seen
            )
        val_loss = val_loss_sum / val_seen
        val_accuracy = val_correct / val_seen
        rate = optimizer.param_groups[0]["lr"]
        history.append({
            "epoch": epoch,
            "train_loss": train_loss,
            "train_accuracy": train_accuracy,
            "val_loss": val_loss,
            "val_accuracy": val_accuracy,
            "rate": rate,
        })
        accelerator.print("epoch %2d: loss %.4f, accuracy %.4f; validation loss %.4f, accuracy %.4f; rate %.4f" % (
            epoch, train_loss, train_accuracy, val_loss, val_accuracy, rate))

        # checkpoints
        if val_accuracy > best_accuracy:
            best_accuracy = val_accuracy
            best_epoch = epoch
            accelerator.save(model.state_dict(), os.path.join(args.out, "best.pt"))
        accelerator.save({
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "best_accuracy": best_accuracy,
            "best_epoch": best_epoch,
        }, os.path.join(args.out, "last.pt"))

        # early stopping
        if epoch - best_epoch > args.patience:
            accelerator.print("no progress for %d epochs" % args.patience)
            break
    elapsed = time.time() - started

    # ------------------------------------------------------------------- test
    best_path = os.path.join(args.out, "best.pt")
    if os.path.exists(best_path):
        model.load_state_dict(torch.load(best_path, map_location=device))
    model.eval()
    test_correct = 0
    evaluation_loader = accelerator.prepare_evaluation(test_loader)
    with torch.no_grad():
        for inputs, targets in evaluation_loader:
            inputs = inputs.to(device)
            targets = targets.to(device)
            test_correct += (model(inputs).argmax(dim=1) == targets).sum().item()
        test_correct = accelerator.merge(evaluation_loader, test_correct)
    test_accuracy = test_correct / len(test_set)
    accelerator.print("test accuracy %.4f (best epoch %d)" % (test_accuracy, best_epoch))

    # which classes are mistaken for which
    confusion = np.zeros((10, 10), dtype=np.int64)
    worst = []
    evaluation_loader = accelerator.prepare_evaluation(test_loader)
    with torch.no_grad():
        for inputs, targets in evaluation_loader:
            outputs = model(inputs.to(device)).cpu()
            probabilities = torch.softmax(outputs, dim=1)
            predictions = outputs.argmax(dim=1)
            for target, prediction, row in zip(targets.tolist(), predictions.tolist(), probabilities):
                confusion[target, prediction] += 1
                if target != prediction:
                    worst.append((row[prediction].item(), target, prediction))
        confusion, worst = accelerator.merge(evaluation_loader, confusion, worst)
    if not args.quiet:
        accelerator.print("rows: what it is, columns: what we say")
        accelerator.print("   " + " ".join("%3d" % c for c in range(10)))
        for c in range(10):
            accelerator.print("%d: " % c + " ".join("%3d" % n for n in confusion[c]))
        per_class = confusion.diagonal() / np.maximum(confusion.sum(axis=1), 1)
        for c in range(10):
            if confusion[c].sum() == 0:
                accelerator.print("class %d does not occur" % c)
            elif per_class[c] < 0.5:
                accelerator.print("class %d is hard: %.2f" % (c, per_class[c]))
        worst.sort(reverse=True)
        for probability, target, prediction in worst[:3]:
            accelerator.print("%.2f sure that a %d is a %d" % (probability, target, prediction))

    # a second test on noisy images
    if args.noise > 0:
        generator = torch.Generator().manual_seed(args.seed)
        noisy_correct = 0
        with torch.no_grad():
            for inputs, targets in test_loader:
                inputs = inputs + args.noise * torch.randn(inputs.shape, generator=generator)
                noisy_correct += (model(inputs.to(device)).argmax(dim=1) == targets.to(device)).sum().item()
        accelerator.print("with noise %.2f: %.4f" % (args.noise, noisy_correct / len(test_set)))

    # ---------------------------------------------------------------- results
    with open(
        os.path.join(args.out, "history.csv") if accelerator.is_main_process else os.devnull, "w",
        newline=""
    ) as f:
        writer = csv.DictWriter(f, fieldnames=[
            "epoch",
            "train_loss",
            "train_accuracy",
            "val_loss",
            "val_accuracy",
            "rate",
        ])
        writer.writeheader()
        for row in history:
            writer.writerow(row)
    # the rates, to draw them later
    rates = [row["rate"] for row in history]
    if rates and max(rates) > 0:
        lowest = min(rates)
        highest = max(rates)
        if not args.quiet:
            accelerator.print("rates from %.4f to %.4f" % (lowest, highest))
    summary = {
        "parameters": n_parameters,
        "epochs": len(history),
        "best_epoch": best_epoch,
        "best_val_accuracy": best_accuracy,
        "test_accuracy": test_accuracy,
        "mean": float(mean),
        "std": float(std),
    }
    if accelerator.is_main_process:
        with open(os.path.join(args.out, "summary.json"), "w") as f:
            json.dump(summary, f, indent=2)
    if not args.quiet:
        accelerator.print("%d epochs, results in %s" % (len(history), args.out))
        if history:
            best_row = max(history, key=lambda row: row["val_accuracy"])
            accelerator.print("best row: epoch %d" % best_row["epoch"])
