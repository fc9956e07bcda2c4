"""Entry point: python train.py --epochs 10"""
import argparse

import torch
from crosstrain import Accelerator

import engine
from data import build_loaders
from models import create_model
from utils import count_parameters, save_checkpoint, seed_everything


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--arch", default="conv", choices=["conv", "linear"])
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--num-train", type=int, default=1400)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--clip-grad", type=float, default=2.0)
    parser.add_argument("--output-dir", default="output")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main(args):
    accelerator = Accelerator()
    seed_everything(args.seed)
    device = accelerator.device

    train_loader, val_loader = build_loaders(args.num_train, args.batch_size)
    model = create_model(args.arch)
    model.to(device)
    accelerator.print(f"{args.arch}: {count_parameters(model)} parameters")

    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=args.epochs * len(train_loader))
    criterion = torch.nn.CrossEntropyLoss()

    best = 0.0
    model, optimizer, train_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, scheduler
    )
    for epoch in range(args.epochs):
        train_stats = engine.train_one_epoch(
            model, criterion, train_loader, optimizer, scheduler, device, epoch, args.clip_grad
        )
        val_stats = engine.evaluate(model, criterion, val_loader, device)
        accelerator.print(f"epoch {epoch}: train {train_stats} val {val_stats}")
        if val_stats["acc"] > best:
            best = val_stats["acc"]
            if accelerator.is_main_process:
                save_checkpoint(args.output_dir, "best.pth", model, optimizer, epoch)
    accelerator.print(f"best accuracy {best:.4f}")


if __name__ == "__main__":
    main(parse_args())
