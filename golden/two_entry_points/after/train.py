"""Step 1: train on the digits 0 to 4.  Step 2 is finetune.py."""
import torch
from crosstrain import Accelerator

from digitlib import make_loader, run_epoch, Classifier


def main():
    torch.manual_seed(1)
    accelerator = Accelerator()
    train_loader = make_loader(range(5), start=0, stop=187, batch_size=48, shuffle=True)
    test_loader = make_loader(range(5), start=187, stop=334, batch_size=32)

    model = Classifier(num_classes=5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    model, optimizer, train_loader, test_loader = accelerator.prepare(
        model, optimizer, train_loader, test_loader
    )
    for epoch in range(2):
        train_loss, _ = run_epoch(model, train_loader, accelerator, optimizer)
        test_loss, test_acc = run_epoch(model, test_loader, accelerator)
        accelerator.print("epoch %d: train loss %.4f, test loss %.4f, test accuracy %.4f"
              % (epoch, train_loss, test_loss, test_acc))

    accelerator.save_model(model, "base.pt")


if __name__ == "__main__":
    main()
