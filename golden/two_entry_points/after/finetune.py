"""Step 2: a new head for the digits 5 to 9, on the frozen trunk of base.pt."""
import argparse
import os

import torch
from crosstrain import Accelerator

from digitlib import Classifier, get_device, make_loader, run_epoch


def main():
    accelerator = Accelerator()
    parser = argparse.ArgumentParser()
    parser.add_argument("--base", default="base.pt")
    parser.add_argument("--epochs", type=int, default=2)
    args = parser.parse_args()

    torch.manual_seed(2)
    device = get_device()
    train_loader = make_loader(range(5, 10), start=0, stop=187, batch_size=48, shuffle=True)
    test_loader = make_loader(range(5, 10), start=187, stop=334, batch_size=32)

    model = Classifier(num_classes=5)
    if os.path.exists(args.base):
        model.load_state_dict(torch.load(args.base, map_location="cpu"))
    for p in model.trunk.parameters():
        p.requires_grad = False
    model.head.reset_parameters()
    model.to(device)

    optimizer = torch.optim.SGD(filter(lambda p: p.requires_grad, model.parameters()), lr=0.5)
    model, optimizer = accelerator.prepare(model, optimizer)
    for epoch in range(args.epochs):
        train_loss, train_acc = run_epoch(model, train_loader, device, optimizer)
        accelerator.print("epoch %d: loss %.4f accuracy %.4f" % (epoch, train_loss, train_acc))
    accelerator.print("test: loss %.4f accuracy %.4f" % run_epoch(model, test_loader, device))

    accelerator.save(model.state_dict(), "finetuned.pt")


if __name__ == "__main__":
    main()
